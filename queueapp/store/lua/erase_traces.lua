#!lua flags=allow-oom
-- erase_traces: what the shard keeps of a tenant beside its jobs → gone, in bounded shares
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant cursor limit
-- Groups:
-- Refusals: schema
-- Events: none
-- Idempotency keys, windows of debounces that have ended, where its rates stand, what was learnt of its run times. Of a
-- tenant without waiting jobs also when it and its lanes have a token again, and how long its limits held it back; one
-- without jobs leaves the list of tenants. What is configured for it stays, and so do its sums of service, which hold
-- no contents and go within two hours. A share is what one SCAN of `limit` finds, in the key space, in `timers`, in
-- `blocks`; behind a failover it begins anew (process.lua). Answers the cursor of the next share, 0 = done, and how
-- many went.
--- @include "shard"
--- @include "clock"
--- @include "process"
tick()
local t, number = ARGV[3], 0
local OF_TENANT = {
  '^idem:([^|]+)|', '^deb:([^|]+)|', '^gcra:t:([^|]+)$', '^gcra:l:([^|]+)|', '^gcra:dt:([^|]+)$', '^gcra:dl:([^|]+)|',
}
local OF_SCOPE = {'^[tl]:([^|]+)', '^qc?:([^|]+)|'}
local phase, giver, cursor = string.match(ARGV[4], '^(%a+) (%w+) (%d+)$')
if giver ~= process then phase, cursor = 'keys', '0' end
local works = (tonumber(redis.call('ZSCORE', P .. 'tenants', t) or nil) or 0) > 0

local function is_of_tenant(name, forms)
  for _, form in ipairs(forms) do
    if string.match(name, form) == t then return true end
  end
  return false
end

local function of_keys()
  local page, gone = redis.call('SCAN', cursor, 'MATCH', P .. '*', 'COUNT', ARGV[5]), {}
  for _, key in ipairs(page[2]) do
    local name = string.sub(key, #P + 1)
    local busy = string.sub(name, 1, 4) == 'deb:' and redis.call('PTTL', key) == -1 -- its job waits or runs
    if not busy and is_of_tenant(name, OF_TENANT) then push(gone, key) end
  end
  unlink(gone)
  return page[1], #gone
end

-- A page of {member or field, score or value …} → those of the tenant.
local function of_scopes(page)
  local gone = {}
  for i = 1, #page[2], 2 do
    if not works and is_of_tenant(page[2][i], OF_SCOPE) then push(gone, page[2][i]) end
  end
  return gone
end

local function of_timers()
  local page = redis.call('ZSCAN', P .. 'timers', cursor, 'COUNT', ARGV[5])
  local gone = of_scopes(page)
  variadic('ZREM', P .. 'timers', gone)
  return page[1], #gone
end

local function of_blocks()
  local page = redis.call('HSCAN', P .. 'blocks', cursor, 'COUNT', ARGV[5])
  local gone = of_scopes(page)
  variadic('HDEL', P .. 'blocks', gone)
  if pool.blocks and redis.call('EXISTS', P .. 'blocks') == 0 then redis.call('HDEL', P .. 'conf', 'blocks') end
  return page[1], #gone
end

local function of_the_rest()
  local learnt, gone = {}, 0
  for _, task in ipairs(redis.call('HKEYS', P .. 'names')) do push(learnt, task .. '|' .. t) end
  for first = 1, #learnt, 4000 do
    gone = gone + redis.call('HDEL', P .. 'est', unpack(learnt, first, math.min(first + 3999, #learnt)))
  end
  if not works and redis.call('EXISTS', P .. 'dead:' .. t) == 0 then
    gone = gone + redis.call('ZREM', P .. 'tenants', t)
  end
  return gone
end

local PHASES = {keys = {of_keys, 'timers'}, timers = {of_timers, 'blocks'}, blocks = {of_blocks}}
local then_
then_, number = PHASES[phase][1]()
if then_ == '0' then phase = PHASES[phase][2] end
if phase then return {1, phase .. ' ' .. process .. ' ' .. then_, number} end
return {1, '0', number + of_the_rest()}
