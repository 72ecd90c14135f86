#!lua flags=allow-oom
-- partition_requeue: active → pending (its old place), ingress, scheduled, dead (unknown task), ended (cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: returned(id attempts delay_ms unknown grace_ms)
-- Refusals: schema
-- Events: stats returned, dead, cancelled; done:<waiter>; wake w, t; wake:leader i
-- Work given back unrun: neither attempt nor crash is counted. unknown = 1: nobody here knows the task; the job waits
-- delay_ms, and dies when grace_ms have passed since it was first given back for that reason.
-- One that was told to stop ends. Answers one word per job: done, dead, cancelled, stale, gone.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "owner"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "finish"
tick()
next_argument = 4
local words = {}
for i, g in ipairs(next_group(tonumber(ARGV[3]), 5)) do
  local id, attempts = g[1], tonumber(g[2])
  local run, word = owned_run(id, attempts)
  local row = run and read_row(id)
  if run and not row then run, word = nil, 'gone' end
  if run then
    word = 'done'
    read_history(run)
    local fields = {'f', run.f + 1, 'en', attempts, 'ch', ''}
    if g[4] == '1' then
      local first = tonumber(redis.call('HGET', P .. 'run:' .. id, 'uk') or now)
      push(fields, 'uk', first)
      if now - first >= tonumber(g[5]) then word = 'dead' end
    end
    settle(run, 0, true) -- what never ran costs nothing, declared or not
    if run.cx then
      word = end_stopped(run, {'en', attempts, 'ch', ''})
    elseif word == 'dead' then
      redis.call('HSET', P .. 'run:' .. id, unpack(fields))
      hash_holds_state(id)
      to_dead(id, run.t, run.n, 'unknown_task')
      end_lease(run)
    else
      give_back(run, row, tonumber(g[3]), fields)
      count('returned')
    end
  end
  words[i] = word
end
write_held()
write_moves()
close()
return {1, words}
