--- @include "service"
--- @include "changes"
-- Puts the pointers right: a lane stands in its tenant's walk exactly while it is runnable, a tenant in the root's walk
-- exactly while one of its lanes does and the tenant itself may run. The ONLY place that calls enter and leave;
-- every script calls it last, for each (tenant, lane) that it touched.

-- Place of the lane's head (rank, number of submission) under an ordered policy, else whether it has work at all.
local function lane_head(t, l)
  local name = t .. '|' .. l
  if pool.ordered then
    local head = redis.call('ZRANGE', W .. 'q:' .. name, 0, 0, 'WITHSCORES')
    if not head[1] then return nil end
    return tonumber(head[2]), tie_of(head[1])
  end
  if has_tiers() then
    return redis.call('EXISTS', W .. 'q:' .. name, W .. 'qc:' .. name) > 0
  end
  return redis.call('EXISTS', W .. 'q:' .. name) > 0
end

local refresh_tenant, refresh
do -- a script has 200 local names at most
local function set_child(N, c, runnable, pointer, tie)
  local S = score(N, c)
  if pool.ordered then
    if runnable and (S ~= pointer or N.tie[c] ~= tie) then
      if pool.mirrored then note_change(N, c, S) end
      put(N, c, pointer, tie)
    elseif S and not runnable then
      if pool.mirrored then note_change(N, c) end
      drop(N, c)
    end
  elseif runnable and not S then
    enter(N, c)
  elseif S and not runnable then
    leave(N, c)
  end
end

-- Does a limit of its own hold this scope back? Told of one with work, or where work may be that no walk knows of.
local function is_held_back(scope, limit, work)
  if not (work or pool.scheduled or pool.leftover or pool.old) then return false end
  return limit.paused or (limit.max and slots_used(scope) >= limit.max)
    or (work and limit.rule and not rates.allows(scope, limit)) or false
end

function refresh_tenant(t, limit, has_lane)
  local T = node(t)
  local pointer, tie
  if not has_lane or pool.ordered then
    local S, _, number = least(T)
    pointer, tie = S, number
  end
  if pool.ordered and T.hidden and (not pointer or before(T.hidden, T.hidden_tie, pointer, tie)) then
    pointer, tie = T.hidden, T.hidden_tie
  end
  local work = has_lane or pointer or T.hidden
  local held_back = is_held_back('t:' .. t, limit, work)
  local runnable = work and not held_back
  if held_back or pool.blocks then blocks.mark_tenant(t, held_back) end
  local root = node('')
  local inside = score(root, t)
  set_child(root, t, runnable, pointer, tie)
  if root.S[t] and not inside then count_entry(t) end
  if pool.floors then floor.moved(node(''), t) end
end

-- `head` and `tie` are what `lane_head` would answer, where the caller knows it.
function refresh(t, l, head, tie)
  local scope = scope_of(t, l)
  local limit = scope.lane
  if head == nil then head, tie = lane_head(t, l) end
  local held_back = is_held_back('l:' .. scope.name, limit, head)
  local runnable = head and not held_back
  if held_back or pool.blocks then blocks.mark_lane(t, scope.name, held_back) end
  set_child(node(t), l, runnable, head, tie)
  if not head and has_tiers() then boosts[scope.name] = false end
  refresh_tenant(t, scope.tenant, runnable)
end
end
