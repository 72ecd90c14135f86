--- @include "rates"
-- Configured limits, and slots in use. A slot is a membership in `slots:<scope>` scored by the lease's start; the size
-- of the set is the number in use, so that releasing twice is a no-op and nothing can drift. Slots are kept only for
-- scopes that have a ceiling or a guaranteed minimum; one set later applies when `configure` has back-filled its slots
-- (flag fill).
local limits, scope_cache = {}, {}
local slots = {used = {}, add = {}}

local load_limits, limit_of, scope_of
--- @include "blocks"
do -- a script has 200 local names at most
local DEFAULTS = {
  t = {weight = pool.weight, paused = false, track = false},
  s = {weight = 10, paused = false, track = false}, -- tenant _ductor: what it waits for, others wait for
  l = {weight = 1, paused = false, track = false},
}

local function parse_limits(field, packed)
  if not packed then return DEFAULTS[field == 't:_ductor' and 's' or string.sub(field, 1, 1)] end
  local weight, max, paused, min, fill, rate =
    string.match(packed, '^([^|]*)|(%d*)|(1?)|(%d*)|(1?)|?([%d,]*)$')
  return {
    weight = tonumber(weight), paused = paused == '1', track = max ~= '' or min ~= '', fill = fill == '1',
    promised = min ~= '', -- a minimum, which may not apply yet
    max = fill ~= '1' and tonumber(max) or nil, min = fill ~= '1' and tonumber(min) or nil,
    rule = rate ~= '' and rates.rule(rate, 'd' .. field) or nil,
  }
end

-- Reads the limits of many scopes at once (`t:<tenant>`, `l:<tenant>|<lane>`).
function load_limits(fields)
  for first = 1, #fields, 4000 do
    local last = math.min(first + 3999, #fields)
    local packed = redis.call('HMGET', P .. 'limits', unpack(fields, first, last))
    for i = first, last do limits[fields[i]] = parse_limits(fields[i], packed[i - first + 1]) end
    if pool.blocks then blocks.load({unpack(fields, first, last)}, packed) end
  end
end

function limit_of(field)
  local found = limits[field]
  if not found then
    local packed = redis.call('HGET', P .. 'limits', field)
    found = parse_limits(field, packed)
    limits[field] = found
    if pool.blocks then blocks.load({field}, {packed}) end
  end
  return found
end
end

local function slots_used(scope)
  local used = slots.used[scope]
  if not used then
    used = redis.call('ZCARD', P .. 'slots:' .. scope)
    slots.used[scope] = used
  end
  return used
end

local function pool_open()
  return not pool.paused and not (pool.max and slots_used('p') >= pool.max)
end

-- What is configured for (tenant, lane), looked up once a call: name, the limits of both, and the scopes that count
-- slots.
function scope_of(t, l)
  local by_lane = scope_cache[t]
  if not by_lane then
    by_lane = {}
    scope_cache[t] = by_lane
  end
  local found = by_lane[l]
  if not found then
    local name = t .. '|' .. l
    found = {name = name, tenant = limit_of('t:' .. t), lane = limit_of('l:' .. name), counted = {}}
    if pool.track then push(found.counted, 'p') end
    if found.tenant.track then push(found.counted, 't:' .. t) end
    if found.lane.track then push(found.counted, 'l:' .. name) end
    by_lane[l] = found
  end
  return found
end

local function take_slots(t, l, id)
  for _, scope in ipairs(scope_of(t, l).counted) do
    slots.used[scope] = slots_used(scope) + 1
    append(slots.add, scope, now, id)
  end
end

-- A job that could not be leased after all takes none.
local function untake_slots(id)
  for scope, pairs_ in pairs(slots.add) do
    for i = #pairs_, 2, -2 do
      if pairs_[i] == id then
        table.remove(pairs_, i)
        table.remove(pairs_, i - 1)
        slots.used[scope] = slots.used[scope] - 1
      end
    end
  end
end

local function write_slots()
  if not next(slots.add) then return end
  for scope, pairs_ in pairs(slots.add) do variadic('ZADD', P .. 'slots:' .. scope, pairs_) end
  slots.add = {}
end

-- True when something was given back, so that the caller refreshes (t, l).
local function release_slots(t, l, id)
  local counted = scope_of(t, l).counted
  for _, scope in ipairs(counted) do
    local gone = redis.call('ZREM', P .. 'slots:' .. scope, id)
    if slots.used[scope] then slots.used[scope] = slots.used[scope] - gone end
  end
  return #counted > 0
end
