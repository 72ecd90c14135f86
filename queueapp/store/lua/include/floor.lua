-- The guaranteed minimum. ZSET floor: those tenants of the walk that hold fewer slots than their min_share, each with
-- the member and the score that it has there. Until there are none, or 9 jobs were picked so in a row, the pick
-- serves the first of them, and the root is not charged for it: what a minimum gives is on top, and nobody pays for it
-- when it goes. `floor` is kept in memory like a node, over the root's own scores.
floor.MOST = 9 -- picks in a row

function floor.below(t)
  local min = limit_of('t:' .. t).min
  return min and slots_used('t:' .. t) < min
end

function floor.place(root, t)
  if root.S[t] and not root.skip[t] and floor.below(t) then place(floor, t, root.S[t]) end
end

-- t has moved in the walk, or has another number of slots.
function floor.moved(root, t)
  floor.dirty[t] = true
  if not floor.order then return end
  displace(floor, t, true)
  floor.place(root, t)
end

-- Writes what changed, before the root does.
function floor.flush(root)
  local add, remove, changed = {}, {}, {}
  for t in pairs(floor.dirty) do changed[t] = true end
  for t in pairs(root.dirty) do changed[t] = true end
  for t in pairs(changed) do
    local S, tie, stored = root.S[t], root.tie[t], root.stored[t]
    local inside = S and floor.below(t)
    if inside then push(add, S, tie .. t) end
    if stored and not (inside and stored == tie) then push(remove, stored .. t) end
  end
  variadic('ZADD', W .. 'floor', add)
  variadic('ZREM', W .. 'floor', remove)
  floor.dirty = {}
end

-- Reads the first n into memory, as `load_order` does for a node.
function floor.load(root, n)
  local changed, found = {}
  for t in pairs(floor.dirty) do changed[t] = true end
  for t in pairs(root.dirty) do changed[t] = true end
  for _ in pairs(changed) do n = n + 1 end
  found = redis.call('ZRANGE', W .. 'floor', 0, n + root.skipped - 1, 'WITHSCORES')
  floor.order, floor.bound, floor.tie = {}, nil, root.tie
  for i = 1, #found, 2 do
    local m = found[i]
    local t, tie = id_of(m), tie_of(m)
    if not changed[t] then
      root.S[t], root.tie[t], root.stored[t] = tonumber(found[i + 1]), tie, tie
      if not root.skip[t] then push(floor.order, {root.S[t], t, m}) end
    end
  end
  if #found == 2 * (n + root.skipped) then floor.bound = {tonumber(found[#found]), found[#found - 1]} end
  for t in pairs(changed) do floor.place(root, t) end
end

-- Before the first pick of a call.
function floor.begin(root, n)
  if not pool.floors then return end
  floor.run = tonumber(redis.call('HGET', W .. 'policy', 'floor_run') or 0)
  floor.run0 = floor.run
  floor.load(root, n)
end

-- The tenant that is to be served now for its minimum, or nil.
function floor.first(root)
  if not pool.floors or floor.run >= floor.MOST then return nil end
  if #floor.order == 0 and floor.bound then floor.load(root, 100) end
  return floor.order[1] and floor.order[1][2]
end

-- A job was leased, for its tenant's minimum or not.
function floor.served(for_minimum)
  if pool.floors then floor.run = for_minimum and floor.run + 1 or 0 end
end
