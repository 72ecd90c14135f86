#!lua flags=allow-oom
-- register: a worker makes itself known; repeated, it renews its entry
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker ttl_ms
-- Groups: info(name value)
-- Refusals: schema
-- Events: none
--- @include "shard"
--- @include "clock"
tick()
stamp_schema()
next_argument = 6
local key, fields = P .. 'worker:' .. ARGV[3], {'since', now}
for _, f in ipairs(next_group(tonumber(ARGV[5]), 2)) do push(fields, f[1], f[2]) end
variadic('HSET', key, fields)
redis.call('PEXPIRE', key, ARGV[4])
redis.call('ZADD', P .. 'workers', now, ARGV[3])
return {1}
