#!lua flags=allow-oom
-- cancel: pending, scheduled, backlog, ingress, ready → ended (cancelled); an active job is told to stop
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats cancelled; done:<waiter>; stop:<worker> c
-- Answers one word per id: cancelled, stopping (it runs and has been told, now or before), moving (it is on its way to
-- another pool, and is not let go here before that one knows of it, arrived.lua), moved (that one has it), already (it
-- has ended or is dead), gone.
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
--- @include "stopping"
tick()
next_argument = 4
local words, running = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 1)) do
  local id, word = j[1], 'gone'
  local row, state, run = waiting_row(id)
  if WAITING[state] then
    leave_waiting(id, row, state, run)
    to_ended(id, 'cancelled', not run and identity(row) or nil, row.keys)
    word = 'cancelled'
  else
    run = run or read_run(id)
    if run then word = run.s == 'a' and 'stopping' or 'already' end
    if word == 'stopping' then push(running, run) end
    if run and run.s == 'e' and redis.call('HGET', P .. 'run:' .. id, 'o') == 'moved' then word = 'moved' end
    if run and run.s == 'm' then
      redis.call('HSETNX', P .. 'run:' .. id, 'cx', now)
      word = 'moving'
    end
  end
  words[i] = word
end
stop_running(running)
close()
return {1, words}
