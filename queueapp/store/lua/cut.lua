#!lua flags=allow-oom
-- cut: what stands in line of a tenant by now is cancelled when it is met, while a bulk cancels the rest of its jobs
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant holder seq ttl_ms
-- Groups:
-- Refusals: schema
-- Events: none
-- `cuts` says up to which number of submission, and until when, so that it ends by itself should the caller die; of
-- each who cancels by itself (`holder`), so that the first of two that ends does not end the other. Every pick looks
-- there while conf `cuts` is set (pick.lua), and at nothing otherwise. ttl_ms = 0 takes it back. Answers how many there
-- are.
--- @include "shard"
--- @include "clock"
tick()
local field, ttl_ms = ARGV[3] .. '|' .. ARGV[4], tonumber(ARGV[6])
if ttl_ms > 0 then
  local seq = string.match(redis.call('HGET', P .. 'cuts', field) or '', '^%d+') or '0'
  redis.call('HSET', P .. 'cuts', field,
    string.format('%.0f %.0f', math.max(tonumber(seq), tonumber(ARGV[5])), now + ttl_ms))
  redis.call('HSET', P .. 'conf', 'cuts', 1)
else
  redis.call('HDEL', P .. 'cuts', field)
end
local left = redis.call('HLEN', P .. 'cuts')
if left == 0 then redis.call('HDEL', P .. 'conf', 'cuts') end
return {1, left}
