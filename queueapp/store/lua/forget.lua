#!lua flags=allow-oom
-- forget: a worker takes its leave
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker
-- Groups:
-- Refusals: schema
-- Events: none
-- Leases that it still holds stay until their deadline. Answers how many these are.
--- @include "shard"
redis.call('DEL', P .. 'worker:' .. ARGV[3])
redis.call('ZREM', P .. 'workers', ARGV[3])
return {1, redis.call('SCARD', P .. 'held:' .. ARGV[3])}
