#!lua
-- save: progress, metadata and checkpoint of a running job, under its lease
--
-- KEYS: prefix
-- ARGV: schema clock_ms id attempts
-- Groups: fields(name value)
-- Refusals: schema
-- Events: none
-- The checkpoint has a key of its own: another attempt alone reads it, and it goes when the job ends.
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
for _, f in ipairs(next_group(tonumber(ARGV[5]), 2)) do
  if f[1] == 'checkpoint' then
    redis.call('SET', P .. 'checkpoint:' .. ARGV[3], f[2])
  else
    push(fields, f[1], f[2])
  end
end
variadic('HSET', P .. 'data:' .. ARGV[3], fields)
return {1, 'done'}
