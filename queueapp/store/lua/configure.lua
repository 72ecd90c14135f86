#!lua flags=allow-oom
-- configure: weights, ceilings, minima, pauses, policy and dispatch, as the admin set them; ready → pending, ingress
--
-- KEYS: prefix
-- ARGV: schema clock_ms version policy paused max unit cost weight by step cursor mode window room draw
-- Groups: scopes(tenant lane weight max min paused clear front dispatch) keys(pattern text max clear front dispatch)
-- Refusals: schema old_version policy_busy
-- Events: wake w; wake:leader i
-- An older version is refused; the same one may be repeated. policy '' leaves the pool as it is. Weights and pauses act
-- at once on everything queued. A ceiling or minimum ('' = none) set for the first time back-fills its slots from ready
-- (cursors r…) and `active`, page by page, and applies when that is done. Then come pages of the keys with waiters
-- (cursors k…): those of the patterns become due; each call looks at 64 that are, the sweep at the others. `dispatch`:
-- rate,period,burst of a dispatch rate (rates.lua), '' = none; another one takes effect at once and keeps how many jobs
-- are owed. Answers the cursor of the next page, 0 = done: the caller repeats the call with it.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "ready"
--- @include "mode"
tick()
next_argument = 19
local version, cursor = tonumber(ARGV[3]), ARGV[12]
local keys_from = string.match(cursor, '^k(%d+)$')
local scopes = next_group(tonumber(ARGV[17]), 9)
local patterns = next_group(tonumber(ARGV[18]), 6)
local known = tonumber(redis.call('HGET', P .. 'conf', 'version') or 0)
if version < known then
  return {0, 'old_version', string.format('%.0f', known)}
end
local orders_anew = ARGV[4] ~= pool.policy or (pool.policy == 'edf' and ARGV[10] ~= pool.by)
  or (pool.policy == 'aging' and tonumber(ARGV[11]) ~= pool.step)
local waiting = ARGV[4] ~= '' and orders_anew and tonumber(redis.call('HGET', P .. 'counts', 'w') or 0) or 0
if waiting > 0 and pool.old then
  return {0, 'policy_busy', pool.policy}
end

local function field_of(s) return s[2] == '' and 't:' .. s[1] or 'l:' .. s[1] .. '|' .. s[2] end
-- What the front door asks (front.lua); '' = nothing.
local function set_front(field, packed)
  local more
  if packed == '' then
    more = -redis.call('HDEL', P .. 'limits', field)
  else
    more = redis.call('HSET', P .. 'limits', field, packed)
  end
  if more ~= 0 and redis.call('HINCRBY', P .. 'conf', 'front', more) <= 0 then
    redis.call('HDEL', P .. 'conf', 'front')
  end
end

local function pack(s, fill)
  local packed = table.concat({s[3], s[4], s[6] == '1' and '1' or '', s[5], fill and '1' or ''}, '|')
  return s[9] ~= '' and packed .. '|' .. s[9] or packed
end

-- Some scope has a dispatch rate (rates.lua).
local function set_rated()
  if not pool.rated then redis.call('HSET', P .. 'conf', 'rated', 1) end
  pool.rated = true
end

-- First page: store everything; ceilings that are new are marked as filling.
local filling = {}
if cursor == '0' then
  stamp_schema()
  redis.call('HSET', P .. 'conf', 'version', version)
  if ARGV[4] ~= '' then
    local fill = ARGV[6] ~= '' and not pool.track
    redis.call('HSET', P .. 'conf', 'policy', ARGV[4], 'paused', ARGV[5],
      'unit', ARGV[7], 'cost', ARGV[8], 'weight', ARGV[9], 'by', ARGV[10], 'step', ARGV[11],
      'window', ARGV[14])
    if waiting > 0 then generation.begin(waiting) end
    if orders_anew then redis.call('HSET', P .. 'conf', 'order', version) end
    if ARGV[4] ~= pool.policy then forget_flush() end
    change_mode(ARGV[13])
    redis.call('HSET', P .. 'conf', 'draw', ARGV[16])
    if ARGV[15] == '' then
      redis.call('HDEL', P .. 'conf', 'room')
    else
      redis.call('HSET', P .. 'conf', 'room', ARGV[15])
    end
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
    local before_, tracks = limit_of(field), s[7] ~= '1' and (s[4] ~= '' or s[5] ~= '')
    if s[7] == '1' then
      redis.call('HDEL', P .. 'limits', field)
      blocks.loosen(field)
    else
      redis.call('HSET', P .. 'limits', field, pack(s, tracks and (before_.fill or not before_.track)))
    end
    if not tracks then unlink({P .. 'slots:' .. field}) end
    set_front('f' .. field, s[7] == '1' and '' or s[8])
    if s[7] ~= '1' and s[9] ~= '' then set_rated() elseif pool.rated then redis.call('ZREM', P .. 'timers', field) end
    local promises = tracks and s[5] ~= ''
    if promises ~= (before_.promised or false) then
      pool.floors = true -- for the rest of this call in any case: `floor` is put right
      if redis.call('HINCRBY', P .. 'conf', 'floors', promises and 1 or -1) <= 0 then
        redis.call('HDEL', P .. 'conf', 'floors')
        redis.call('HDEL', W .. 'policy', 'floor_run')
      end
    end
    limits[field] = nil
  end
  for _, k in ipairs(patterns) do
    if k[4] == '1' then
      redis.call('HDEL', P .. 'limits', 'kp:' .. k[1])
    else
      redis.call('HSET', P .. 'limits', 'kp:' .. k[1], k[3] .. (k[6] ~= '' and ',' .. k[6] or '') .. '|' .. k[2])
      if k[6] ~= '' then set_rated() end
    end
    set_front('fk:' .. k[1], k[4] == '1' and '' or k[5])
  end
end
for _, s in ipairs(scopes) do
  local stored = redis.call('HGET', P .. 'limits', field_of(s))
  if stored and string.match(stored, '^[^|]*|%d*|1?|%d*|1') then filling[field_of(s)] = s end
end
local fills_pool = redis.call('HGET', P .. 'conf', 'fill')

-- A page of the back-fill: first those in ready, then those in active. New leases, and what is dispatched, take their
-- slots themselves from the moment the ceiling is stored.
local ready_from = ARGV[12] == '0' and '0' or string.match(cursor, '^r(%d+)$')
if ready_from and (next(filling) or fills_pool) then
  local last = fill_from_ready(filling, fills_pool, ready_from)
  cursor = last and 'r' .. last or '0'
end
if not keys_from and not string.find(cursor, 'r') and (next(filling) or fills_pool) then
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
local conf = redis.call('HMGET', P .. 'conf', 'policy', 'paused', 'max', 'fill', 'by', 'step')
pool.paused = conf[2] == '1'
pool.max, pool.track = not conf[4] and tonumber(conf[3] or nil) or nil, conf[3] and true or false
set_policy(conf[1], conf[5], conf[6])
limits, scope_cache, slots.used = {}, {}, {}
if rates.write then rates.open() end
if #patterns > 0 and pool.keyed and (keys_from or cursor == '0') then
  local changed = {}
  for _, k in ipairs(patterns) do changed[k[1]] = true end
  local next_ = sub.make_due(changed, keys_from or '0')
  sub.sweep(64)
  cursor = next_ ~= '0' and 'k' .. next_ or '0'
end
for _, s in ipairs(scopes) do
  generation.expose(s[1], s[2] ~= '' and s[2] or nil)
  freed[s[1]] = true
  if pool.mirrored then note_weight(s[1], s[2]) end
  local rule = limit_of(field_of(s)).rule
  if rule then rates.free('d' .. field_of(s), rule) end -- what is owed is converted now
  if s[2] == '' then
    refresh_tenant(s[1], limit_of('t:' .. s[1]))
  else
    refresh(s[1], s[2])
  end
end
if cursor == '0' then sweep_ready(500) end -- what was paused leaves ready; what lies beyond, when it is met
close()
return {1, cursor}
