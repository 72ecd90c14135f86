#!lua flags=allow-oom
-- configure: weights, ceilings and pauses, as the admin set them
--
-- KEYS: prefix
-- ARGV: schema clock_ms version policy paused max unit cost weight cursor
-- Groups: scopes(tenant lane weight max paused clear)
-- Refusals: schema old_version policy_busy
-- Events: wake w
-- An older version is refused; the same one may be repeated. policy '' leaves the pool as it is. Weights and pauses act
-- at once on everything queued. A ceiling set for the first time back-fills its slots from `active`, page by page, and
-- applies when that is done. Answers the cursor of the next page, 0 = done: the caller repeats the call with it.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "refresh"
--- @include "wake"
--- @include "move"
tick()
next_argument = 12
local version, cursor = tonumber(ARGV[3]), ARGV[10]
local scopes = next_group(tonumber(ARGV[11]), 6)
local known = tonumber(redis.call('HGET', P .. 'conf', 'version') or 0)
if version < known then
  return {0, 'old_version', string.format('%.0f', known)}
end
if ARGV[4] ~= '' and ARGV[4] ~= pool.policy and tonumber(redis.call('HGET', P .. 'counts', 'w') or 0) > 0 then
  return {0, 'policy_busy', pool.policy}
end

local function field_of(s) return s[2] == '' and 't:' .. s[1] or 'l:' .. s[1] .. '|' .. s[2] end
local function pack(s, fill) return table.concat({s[3], s[4], s[5] == '1' and '1' or '', fill and '1' or ''}, '|') end

-- First page: store everything; ceilings that are new are marked as filling.
local filling = {}
if cursor == '0' then
  stamp_schema()
  redis.call('HSET', P .. 'conf', 'version', version)
  if ARGV[4] ~= '' then
    local fill = ARGV[6] ~= '' and not pool.track
    redis.call('HSET', P .. 'conf', 'policy', ARGV[4], 'paused', ARGV[5],
      'unit', ARGV[7], 'cost', ARGV[8], 'weight', ARGV[9])
    if ARGV[6] == '' then
      redis.call('HDEL', P .. 'conf', 'max', 'fill')
      unlink({P .. 'slots:p'})
    else
      redis.call('HSET', P .. 'conf', 'max', ARGV[6])
      if fill then redis.call('HSET', P .. 'conf', 'fill', 1) end
    end
  end
  for _, s in ipairs(scopes) do
    local field = field_of(s)
    local before_ = limit_of(field)
    if s[6] == '1' then
      redis.call('HDEL', P .. 'limits', field)
    else
      redis.call('HSET', P .. 'limits', field, pack(s, s[4] ~= '' and (before_.fill or not before_.track)))
    end
    if s[6] == '1' or s[4] == '' then unlink({P .. 'slots:' .. field}) end
  end
end
for _, s in ipairs(scopes) do
  local stored = redis.call('HGET', P .. 'limits', field_of(s))
  if stored and string.sub(stored, -2) == '|1' then filling[field_of(s)] = s end
end
local fills_pool = redis.call('HGET', P .. 'conf', 'fill')

-- A page of the back-fill. New leases take their slots themselves from the moment the ceiling is stored.
if next(filling) or fills_pool then
  local page = redis.call('ZSCAN', P .. 'active', cursor, 'COUNT', 200)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local run = read_run(page[2][i])
    if run then
      for _, field in ipairs({'t:' .. run.t, 'l:' .. run.t .. '|' .. run.l}) do
        if filling[field] then redis.call('ZADD', P .. 'slots:' .. field, run.st, run.id) end
      end
      if fills_pool then redis.call('ZADD', P .. 'slots:p', run.st, run.id) end
    end
  end
  if cursor == '0' then
    for field, s in pairs(filling) do redis.call('HSET', P .. 'limits', field, pack(s, false)) end
    redis.call('HDEL', P .. 'conf', 'fill')
  end
end

-- What is in force now: every tenant and lane that was named is put right, on every page.
local conf = redis.call('HMGET', P .. 'conf', 'policy', 'paused', 'max', 'fill')
pool.policy, pool.paused = conf[1] or 'tiered', conf[2] == '1'
pool.max, pool.track = not conf[4] and tonumber(conf[3] or nil) or nil, conf[3] and true or false
pool.ordered = pool.policy == 'fifo'
limits, scope_cache, slots.used = {}, {}, {}
for _, s in ipairs(scopes) do
  if s[2] == '' then
    refresh_tenant(s[1], limit_of('t:' .. s[1]))
  else
    refresh(s[1], s[2])
  end
end
close()
return {1, cursor}
