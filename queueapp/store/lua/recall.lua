#!lua flags=allow-oom
-- recall: moving → pending, scheduled, ingress, ended (cancelled), back where it was
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id hop)
-- Refusals: schema
-- Events: stats recalled; wake w, t; wake:leader i
-- Where no `arrive` has brought it to the other pool, and none can any more. In two steps: hop 0 asks it back, and from
-- then on it is not packed any more (departed.lua). When the last pack is too old to arrive, and the other pool says
-- after that that it has not come by the departure `hop` (or nobody knows that pool), it goes back to its place in
-- line, as far as it had one. Who was cancelled on its way ends. Answers one word per id: recalled (asked back, now or
-- before), back, cancelled, lost (nobody can read its row), already (it is not on its way), gone.
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
--- @include "transit"
tick()
next_argument = 4
local words, done = {}, {}

local function to_place(id, row, run)
  read_history(run)
  redis.call('HDEL', P .. 'run:' .. id, 'bk', 'mv', 'us', 'ep', 'dt')
  remove_from('moving', id)
  if run.cx then
    to_ended(id, 'cancelled', nil, row.keys)
    return 'cancelled'
  end
  local due = ready_of(row, run)
  to_expiring(row, id)
  count_waiting(row.tenant, 1)
  count('recalled')
  if due > now then
    redis.call('HSET', P .. 'run:' .. id, 's', 's')
    to_scheduled(id, due)
  elseif tonumber(row.seq, 16) == 0 then
    place_anew(id, row, run, take_seq(1), now)
  else
    place_again(id, row, run, {}, run.us)
  end
  return 'back'
end

for i, j in ipairs(next_group(tonumber(ARGV[3]), 2)) do
  local id, hop, word = j[1], j[2], 'gone'
  local run = read_run(id)
  local v = redis.call('HMGET', P .. 'run:' .. id, 'hp', 'bk', 'mv')
  if done[id] or (run and run.s ~= 'm' and v[1] == hop and not v[3]) then -- now or before
    word = done[id] or run.s == 'e' and 'cancelled' or 'back'
  elseif run and run.s ~= 'm' then
    word = 'already'
  elseif run and hop == '0' then
    redis.call('HSETNX', P .. 'run:' .. id, 'bk', now)
    word = 'recalled'
  elseif run and v[1] ~= hop then
    word = 'already'
  elseif run then
    local row = read_row(id)
    if not v[2] or now - tonumber(v[2]) <= RIPE_MS then
      word = 'recalled'
    elseif not row then
      word = 'lost'
    else
      word = to_place(id, row, run)
      done[id] = word
    end
  end
  words[i] = word
end
close()
return {1, words}
