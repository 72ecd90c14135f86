#!lua flags=allow-oom
-- register: a worker makes itself known; repeated, it renews its entry
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker ttl_ms channel
-- Groups: info(name value)
-- Refusals: schema
-- Events: none
-- `channel`: where it is subscribed (presence.lua). Whose subscription this script sees is watched from now on: when it
-- goes, its leases are recovered long before they end. Answers whether anybody is seen there.
--- @include "shard"
--- @include "clock"
--- @include "presence"
tick()
stamp_schema()
next_argument = 7
local worker, channel = ARGV[3], ARGV[5]
local key, fields = P .. 'worker:' .. worker, {'since', now}
for _, f in ipairs(next_group(tonumber(ARGV[6]), 2)) do push(fields, f[1], f[2]) end
push(fields, 'channel', channel, 'absent', '')
variadic('HSET', key, fields)
redis.call('PEXPIRE', key, ARGV[4])
redis.call('ZADD', P .. 'workers', now, worker)
local armed = tonumber(presence.armed(channel))
if armed == 1 then
  redis.call('ZADD', P .. 'watched', 0, worker)
else
  redis.call('ZREM', P .. 'watched', worker)
end
return {1, armed}
