#!lua flags=allow-oom
-- move_to_dlq: pending, scheduled, backlog, ingress, ready, waiting → dead, by an operator's hand
--
-- KEYS: prefix
-- ARGV: schema clock_ms reason
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats dead; done:<waiter>
-- Answers one word per id: moved, already (dead or ended), active (it runs), gone.
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
local words = {}
for i, j in ipairs(next_group(tonumber(ARGV[4]), 1)) do
  local id, word = j[1], 'gone'
  local row, state, run = waiting_row(id)
  if WAITING[state] or state == 'w' then
    if state == 'w' then family.leave(id, row) else leave_waiting(id, row, state, run) end
    if not run then redis.call('HSET', P .. 'run:' .. id, unpack(identity(row))) end
    hash_holds_state(id)
    to_dead(id, row.tenant, row.task, ARGV[3])
    word = 'moved'
  else
    run = run or read_run(id)
    if run then word = run.s == 'a' and 'active' or 'already' end
  end
  words[i] = word
end
close()
return {1, words}
