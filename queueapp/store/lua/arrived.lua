#!lua flags=allow-oom
-- arrived: moving → ended (moved)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id hop)
-- Refusals: schema
-- Events: stats moved; done:<waiter>
-- The last of three steps (depart.lua), of the departure of this number: the other pool has it. What is left is the
-- row of an ended job that says where it went. Answers one word per id: moved (now or before), already (it was not on
-- its way), gone.
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
local words, left = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 2)) do
  local id = j[1]
  local run, word = read_run(id), 'gone'
  if run and run.s == 'm' and not left[id] and redis.call('HGET', P .. 'run:' .. id, 'hp') == j[2] then
    local row = read_row(id)
    to_ended(id, 'moved', nil, row and row.keys)
    push(moves.unlink, P .. 'errors:' .. id, P .. 'data:' .. id)
    remove_from('moving', id)
    left[id], word = true, 'moved'
  elseif run then
    word = (left[id] or redis.call('HGET', P .. 'run:' .. id, 'o') == 'moved') and 'moved' or 'already'
  end
  words[i] = word
end
close()
return {1, words}
