#!lua flags=allow-oom
-- forget: a worker takes its leave
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker
-- Groups:
-- Refusals: schema
-- Events: wake w, for a token that this worker may have taken along
-- Leases that it still holds stay until their deadline. Answers how many these are. What is left of it for a while is a
-- mark that no late repeat of an old call passes.
--- @include "shard"
--- @include "slots"
--- @include "node"
--- @include "wake"
arm()
local key = P .. 'worker:' .. ARGV[3]
redis.call('DEL', key)
redis.call('HSET', key, 'seq', 9007199254740991)
redis.call('PEXPIRE', key, 60000)
redis.call('ZREM', P .. 'workers', ARGV[3])
redis.call('ZREM', P .. 'watched', ARGV[3])
return {1, redis.call('SCARD', P .. 'held:' .. ARGV[3])}
