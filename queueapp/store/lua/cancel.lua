#!lua flags=allow-oom
-- cancel: pending, scheduled, backlog, ingress, ready → ended (cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats cancelled; done:<waiter>
-- Answers one word per id: cancelled, already (it has ended or is dead), active (it runs; too late), gone.
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
next_argument = 4
local words = {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 1)) do
  local id, word = j[1], 'gone'
  local row, state, run = waiting_row(id)
  if WAITING[state] then
    leave_waiting(id, row, state, run)
    to_ended(id, 'cancelled', not run and identity(row) or nil, row.keys)
    word = 'cancelled'
  else
    run = run or read_run(id)
    if run then word = run.s == 'a' and 'active' or 'already' end
  end
  words[i] = word
end
close()
return {1, words}
