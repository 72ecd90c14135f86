#!lua flags=allow-oom
-- cancel: pending, scheduled, backlog, ingress, ready, waiting → ended (cancelled); an active job is told to stop
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats cancelled; done:<waiter>; stop:<worker> c
-- Answers one word per id: cancelled, stopping (it runs and has been told, now or before), moving (it is on its way to
-- another pool, and is not let go here before that one knows of it, arrived.lua), moved (that one has it), already (it
-- has ended or is dead), gone. With a parent that waits for its children, these are cancelled, too (cancelling.lua).
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
--- @include "cancelling"
tick()
next_argument = 4
local words, running = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 1)) do words[i] = family.cancel(j[1], running) end
stop_running(running)
family.sweep(250)
close()
return {1, words}
