#!lua
-- add_children: active → waiting, ended (cancelled); where there are none, at once pending, ingress
--
-- KEYS: prefix
-- ARGV: schema clock_ms parent attempts cost hold
-- Groups: nodes(id task tenant lane priority tier cost due_ms delay_ms expires_after_ms max_attempts max_crashes deadline_ms keys front fingerprint payload parent policy position waits) away(id parent policy position tenant blob)
-- Refusals: schema not_waiting
-- Events: stats enqueued; wake w, t; wake:leader i
-- A running job (attempts: its fence) adds children, trees as those of enqueue_flow, and waits for them from then on:
-- its attempt is over, what it cost is settled, and a repeat finds it ended. attempts = '': children of a job that
-- waits already, told by their ids; not_waiting: it does not. hold = 1: more of them come, with `enqueue_flow`.
-- Answers done (now or before), cancelled (it was told to stop: it ends, and nothing is added), stale, gone.
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
--- @include "due"
--- @include "tree"
tick()
next_argument = 9
local parent, leased = ARGV[3], ARGV[4] ~= ''
local found = tree.read(next_group(tonumber(ARGV[7]), 21), next_group(tonumber(ARGV[8]), 6))
local run, row, word
if leased then
  run, word = owned_run(parent, tonumber(ARGV[4]))
  row = run and read_row(parent)
  if run and not row then word = 'gone' end
elseif tree.known(found) then
  word = 'done'
else
  run = read_run(parent)
  if not run or run.s ~= 'w' then
    return {0, 'not_waiting', run and run.s or ''}
  end
end
if not word and leased and run.cx then
  word = end_stopped(run, {'en', run.a})
elseif not word then
  tree.refused(found, true)
  if leased then family.suspend(run, row, tonumber(ARGV[5])) end
  tree.write(found)
  if ARGV[6] == '1' then tree.hold(parent) end
  family.look(parent)
end
write_held()
close()
return {1, word or 'done'}
