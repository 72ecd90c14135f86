#!lua flags=allow-oom
-- erase_traces: what the shard keeps of a tenant beside its jobs → gone, in bounded shares
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant cursor limit
-- Groups:
-- Refusals: schema
-- Events: none
-- Idempotency keys, windows of debounces that have ended, where its rates stand, what was learnt of its run times; a
-- tenant without jobs leaves the list of tenants. What is configured for it stays, and so do its sums of service, which
-- hold no contents and go within two hours. A share is what one SCAN of `limit` finds. Answers the cursor of the next
-- share, 0 = done, and how many went.
--- @include "shard"
--- @include "clock"
tick()
local t, gone = ARGV[3], {}
local OF_TENANT = {
  ['^idem:([^|]+)|'] = true, ['^deb:([^|]+)|'] = true, ['^gcra:t:([^|]+)$'] = true, ['^gcra:l:([^|]+)|'] = true,
  ['^gcra:dt:([^|]+)$'] = true, ['^gcra:dl:([^|]+)|'] = true,
}
local pattern = string.gsub(P, '[%[%]%*%?\\]', '\\%0') .. '*'
local page = redis.call('SCAN', ARGV[4], 'MATCH', pattern, 'COUNT', ARGV[5])
for _, key in ipairs(page[2]) do
  local name = string.sub(key, #P + 1)
  for form in pairs(OF_TENANT) do
    local busy = string.sub(name, 1, 4) == 'deb:' and redis.call('PTTL', key) == -1 -- its job waits or runs
    if string.match(name, form) == t and not busy then push(gone, key) end
  end
end
unlink(gone)
local number = #gone
if page[1] == '0' then
  local learnt = {}
  for _, task in ipairs(redis.call('HKEYS', P .. 'names')) do push(learnt, task .. '|' .. t) end
  for first = 1, #learnt, 4000 do
    number = number + redis.call('HDEL', P .. 'est', unpack(learnt, first, math.min(first + 3999, #learnt)))
  end
  if tonumber(redis.call('ZSCORE', P .. 'tenants', t) or nil) == 0 and redis.call('EXISTS', P .. 'dead:' .. t) == 0 then
    number = number + redis.call('ZREM', P .. 'tenants', t)
  end
end
return {1, page[1], number}
