#!lua flags=allow-oom
-- cut: what stands in line of a tenant by now is cancelled when it is met, while a bulk cancels the rest of its jobs
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant seq ttl_ms
-- Groups:
-- Refusals: schema
-- Events: none
-- `cuts` says up to which number of submission, and until when, so that it ends by itself should the caller die. Every
-- pick looks there while conf `cuts` is set (pick.lua), and at nothing otherwise. ttl_ms = 0 takes it back. Answers how
-- many tenants are cut.
--- @include "shard"
--- @include "clock"
tick()
local tenant, ttl_ms = ARGV[3], tonumber(ARGV[5])
if ttl_ms > 0 then
  local seq = string.match(redis.call('HGET', P .. 'cuts', tenant) or '', '^%d+') or '0'
  redis.call('HSET', P .. 'cuts', tenant,
    string.format('%.0f %.0f', math.max(tonumber(seq), tonumber(ARGV[4])), now + ttl_ms))
  redis.call('HSET', P .. 'conf', 'cuts', 1)
else
  redis.call('HDEL', P .. 'cuts', tenant)
end
local left = redis.call('HLEN', P .. 'cuts')
if left == 0 then redis.call('HDEL', P .. 'conf', 'cuts') end
return {1, left}
