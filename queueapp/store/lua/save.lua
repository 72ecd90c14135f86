#!lua
-- save: progress and metadata of a running job, under its lease
--
-- KEYS: prefix
-- ARGV: schema clock_ms id attempts
-- Groups: fields(name value)
-- Refusals: schema
-- Events: none
-- Answers one word: done, stale, gone.
--- @include "shard"
--- @include "row"
--- @include "owner"
next_argument = 6
local run, word = owned_run(ARGV[3], tonumber(ARGV[4]))
if not run then
  return {1, word == 'done' and 'stale' or word}
end
local fields = {}
for _, f in ipairs(next_group(tonumber(ARGV[5]), 2)) do push(fields, f[1], f[2]) end
variadic('HSET', P .. 'data:' .. ARGV[3], fields)
return {1, 'done'}
