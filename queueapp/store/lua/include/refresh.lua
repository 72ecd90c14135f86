-- Puts the pointers right: a lane stands in its tenant's walk exactly while it is runnable, a tenant in the root's walk
-- exactly while one of its lanes does and the tenant itself may run. The ONLY place that calls enter and leave;
-- every script calls it last, for each (tenant, lane) that it touched.

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

local function refresh_tenant(t, limit, has_lane)
  local T = node(t)
  local pointer = (not has_lane or pool.ordered) and least(T)
  if pool.ordered and T.hidden then pointer = math.min(pointer or T.hidden, T.hidden) end
  local runnable = (has_lane or pointer or T.hidden) and not limit.paused
    and (not limit.max or slots_used('t:' .. t) < limit.max)
  set_child(node(''), t, runnable, pointer)
end

-- `head` is what `lane_head` would answer, where the caller knows it.
local function refresh(t, l, head)
  local scope = scope_of(t, l)
  local limit = scope.lane
  if head == nil then head = lane_head(t, l) end
  local runnable = head and not limit.paused and (not limit.max or slots_used('l:' .. scope.name) < limit.max)
  set_child(node(t), l, runnable, head)
  if not head and pool.tiers then boosts[scope.name] = false end
  refresh_tenant(t, scope.tenant, runnable)
end
