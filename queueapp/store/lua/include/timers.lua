-- The sweep of `timers` (rates.lua): tenants and lanes whose moment has come are refreshed. `cycle` does 16, whoever
-- calls `promote_due` as many as its limit. Comes after the lanes that jobs touched are right.
do -- a script has 200 local names at most
local function load_unknown(fields)
  local unknown = {}
  for _, field in ipairs(fields) do
    if limits[field] == nil then push(unknown, field) end
  end
  load_limits(unknown)
end

local function refresh_all(fields)
  for _, field in ipairs(fields) do
    local kind, t, l = string.match(field, '^([tl]):([^|]+)|?(.*)$')
    freed[t] = true
    if kind == 'l' then refresh(t, l) else refresh_tenant(t, limit_of(field)) end
  end
end

-- True = there may be more.
function rates.sweep(limit)
  if not pool.rated then return false end
  local due = redis.call('ZRANGEBYSCORE', P .. 'timers', '-inf', now, 'LIMIT', 0, limit)
  if #due == 0 then return false end
  redis.call('ZREM', P .. 'timers', unpack(due))
  load_unknown(due)
  refresh_all(due)
  return #due == limit
end

-- A page of what is configured: those with a rate of whom `timers` knows nothing, or a moment that is too late, are
-- refreshed, too. So whoever is out of the walk comes back although their entry was lost or the clock was set back.
function rates.look_for_lost()
  if not pool.rated then return end
  local page = redis.call('HSCAN', P .. 'limits', redis.call('HGET', P .. 'marks', 'rated') or '0', 'COUNT', 16)
  redis.call('HSET', P .. 'marks', 'rated', page[1])
  local names, lost = {}, {}
  for i = 1, #page[2], 2 do
    local field, packed = page[2][i], page[2][i + 1]
    if string.match(field, '^[tl]:') and string.match(packed, '|%d+,%d+,%d+$') then push(names, field) end
  end
  if #names == 0 then return end
  load_unknown(names)
  for i, moment in ipairs(redis.call('ZMSCORE', P .. 'timers', unpack(names))) do
    local rule = limits[names[i]].rule
    if rule and (not moment or tonumber(moment) > math.max(now, rates.moment('d' .. names[i], rule))) then
      push(lost, names[i])
    end
  end
  refresh_all(lost)
end
end
