-- Puts the pointers right: a lane stands in its tenant's walk exactly while it is runnable, a tenant in the root's walk
-- exactly while one of its lanes does and the tenant itself may run. The ONLY place that calls enter and leave;
-- every script calls it last, for each (tenant, lane) that it touched.
local function below_ceiling(limit, scope)
  return not (limit.max and slots_used(scope) >= limit.max)
end

-- Rank of the lane's head under an ordered policy, else whether it has work at all.
local function lane_head(t, l)
  local name = t .. '|' .. l
  if pool.ordered then
    local head = redis.call('ZRANGE', P .. 'q:' .. name, 0, 0, 'WITHSCORES')
    return tonumber(head[2])
  end
  if pool.tiers then
    return redis.call('EXISTS', P .. 'q:' .. name, P .. 'qc:' .. name) > 0
  end
  return redis.call('EXISTS', P .. 'q:' .. name) > 0
end

local function set_child(N, c, runnable, pointer)
  local S = score(N, c)
  if pool.ordered then
    if runnable and S ~= pointer then
      put(N, c, pointer)
    elseif S and not runnable then
      drop(N, c)
    end
  elseif runnable and not S then
    enter(N, c)
  elseif S and not runnable then
    leave(N, c)
  end
end

local function refresh_tenant(t, has_lane)
  local limit, T = limit_of('t:' .. t), node(t)
  local pointer = (not has_lane or pool.ordered) and least(T)
  local runnable = (has_lane or pointer or T.hidden) and not limit.paused and below_ceiling(limit, 't:' .. t)
  set_child(node(''), t, runnable, pointer)
end

-- `head` is what `lane_head` would answer, where the caller knows it.
local function refresh(t, l, head)
  local name = t .. '|' .. l
  local limit = limit_of('l:' .. name)
  if head == nil then head = lane_head(t, l) end
  local runnable = head and not limit.paused and below_ceiling(limit, 'l:' .. name)
  set_child(node(t), l, runnable, head)
  if not head and pool.tiers then boosts[name] = false end
  refresh_tenant(t, runnable)
end
