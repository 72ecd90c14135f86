#!lua
-- flush_policy: what a leader's policy holds in memory, kept for the next leader
--
-- KEYS: prefix
-- ARGV: schema clock_ms epoch nonce order number blob
-- Groups:
-- Refusals: schema fenced order_changed
-- Events: none
-- Replaces what was kept, never merges: the contents first, then the pointer (`marks` flush), then the old contents go.
-- `number` must be above the last. Answers kept (also for a repeat), or old: nothing was changed.
--- @include "shard"
--- @include "clock"
--- @include "fence"
if is_over(ARGV[3], ARGV[4]) then
  return {0, 'fenced'}
end
if is_another_order(ARGV[5]) then
  return {0, 'order_changed'}
end
tick()
local last = redis.call('HGET', P .. 'marks', 'flush')
local number = tonumber(ARGV[6])
if last and number <= tonumber(last) then
  local again = number == tonumber(last) and redis.call('GET', P .. 'flushed:' .. last) == ARGV[7]
  return {1, again and 'kept' or 'old'}
end
redis.call('SET', string.format('%sflushed:%.0f', P, number), ARGV[7])
redis.call('HSET', P .. 'marks', 'flush', string.format('%.0f', number))
if last then unlink({P .. 'flushed:' .. last}) end
return {1, 'kept'}
