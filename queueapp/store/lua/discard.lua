#!lua flags=allow-oom
-- discard: dead → ended (discarded)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats discarded
-- Answers one word per id: discarded, already (not dead any more), gone.
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
  if state == 'd' then
    to_ended(id, 'discarded', nil, row.keys)
    if run.kd then family.forget(id) end
    leave_dead(id, row.tenant)
    word = 'discarded'
  elseif row or redis.call('EXISTS', P .. 'run:' .. id) == 1 then
    word = 'already'
  end
  words[i] = word
end
close()
return {1, words}
