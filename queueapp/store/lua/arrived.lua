#!lua flags=allow-oom
-- arrived: moving → ended (moved)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id hop cancelled)
-- Refusals: schema
-- Events: stats moved; done:<waiter>
-- The last of three steps (depart.lua), of the departure of this number: the other pool has it. cancelled = 1: and was
-- told there that it is. What is left is the row of an ended job that says where it went, in `stubs` (stubs.lua).
-- Answers one word per id: moved (now or before), cancelled (it was, meanwhile: the other pool must be told first),
-- already (it was not on its way), gone.
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
local words, left = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 3)) do
  local id, key_ = j[1], P .. 'run:' .. j[1]
  local run, word = read_run(id), 'gone'
  if run and run.s == 'm' and not left[id] and redis.call('HGET', key_, 'hp') == j[2] then
    word = 'cancelled'
    if not run.cx or j[3] == '1' then
      local row = read_row(id)
      redis.call('HSET', key_, 's', 'e', 'o', 'moved', 'te', now)
      redis.call('HDEL', key_, 'bk', 'cx', 'us', 'ue')
      append(moves.add, 'stubs', now, id)
      remove_from('moving', id)
      push(moves.unlink, P .. 'job:' .. id, P .. 'checkpoint:' .. id)
      for _, kind in ipairs(STUB_KEYS) do push(moves.unlink, P .. kind .. id) end
      push(moves.ended, id)
      if row and row.keys then use_keys(row.keys, -1) end
      count('moved')
      left[id], word = true, 'moved'
    end
  elseif run then
    word = (left[id] or redis.call('HGET', key_, 'o') == 'moved') and 'moved' or 'already'
  end
  words[i] = word
end
close()
return {1, words}
