#!lua flags=allow-oom
-- depart: pending, scheduled, backlog, ingress, ready → moving
--
-- KEYS: prefix
-- ARGV: schema clock_ms to
-- Groups: jobs(id)
-- Refusals: schema
-- Events: none
-- The first of three steps to another pool (`to`, its code and shard): from here on nobody runs the job here, and all
-- that `arrive` needs there stays until `arrived` says that it has come. Whoever dies in between leaves the job in
-- `moving`, where every scheduler finds it. A job with a singleton or a debounce stays: the key is this pool's;
-- and so does one that has children or is one: this pool knows what waits for them. Each
-- departure has a number, one more than the last (run hash, `hp`), which tells the steps of one from those of another
-- that is long over: a job may come back. Answers one word per id: moving (now or before), held (it has such a key),
-- active, already (it has ended or is dead), gone.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "due"
tick()
next_argument = 5
-- What a job in line has waited for its limits since it came there: it goes along.
local function waited_for_limits(row, state, run)
  if run then read_history(run) end
  if state == 'r' then return run.us end
  if state ~= 'p' and state ~= 'i' then return 0 end
  local stood = row.stood
  if run then stood = run.ue end
  if not stood and not pool.blocks then return 0 end
  return math.max(0, waited.stands(row, state == 'i') - (stood or 0))
end

local words, left = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[4]), 1)) do
  local id, word = j[1], 'gone'
  local row, state, run = waiting_row(id)
  if WAITING[state] and not left[id] then
    if family.is_member(id) or run and run.kd or pool.once and redis.call('HEXISTS', P .. 'once', id) == 1 then
      word = 'held'
    else
      local spent = waited_for_limits(row, state, run)
      leave_waiting(id, row, state, run)
      local fields = not run and identity(row) or {}
      redis.call('HSET', P .. 'run:' .. id, 's', 'm', 'mv', ARGV[3], 'us', spent, unpack(fields))
      redis.call('HINCRBY', P .. 'run:' .. id, 'hp', 1)
      hash_holds_state(id)
      append(moves.add, 'moving', now, id)
      left[id], word = true, 'moving'
    end
  else
    run = run or read_run(id)
    if run then word = run.s == 'a' and 'active' or (run.s == 'm' or left[id]) and 'moving' or 'already' end
    if run and run.s == 'w' then word = 'held' end
  end
  words[i] = word
end
close()
return {1, words}
