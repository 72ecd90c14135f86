-- A node of the walk: the root over tenants (name ''), and each tenant over its lanes. Writes are kept in memory until
-- `flush`, so that many moves of one pointer cost one command. Start-time fair queueing, tags at dispatch:
-- V never decreases while the node lives; a child in the walk has a start tag S; one out of it that is ahead of V keeps
-- its finish tag F in `tags`. Ordered policies use the same sets with the rank of the head as S; of them only wfq has V
-- and tags, at the root. Where ranks tie, a member of the walk is the head's number of submission and the child, and
-- `heads` tells the number. ring: S is the turn at which a child went to the end; V counts turns, there are no tags.
-- Guarded by tests/model/test_parity.py, which demands the order of queueapp/policies/tree.py to the id.
local nodes = {}
local boosts = {}       -- tenant|lane → continuations served in a row while fresh work waited; false = forget
local gone_tenants = {} -- tenants that lost their last waiting job or their finish tag, looked at by `flush_nodes`
local floor = {dirty = {}} -- tenants below their guaranteed minimum (floor.lua)

-- tie[c] is the number of submission that orders c among equals ('' where ranks do not tie), stored[c] the one that its
-- member in the store has, false when it has none there.
local function new_node(name)
  local root = name == ''
  local N = {
    name = name, S = {}, tie = {}, stored = {}, dirty = {}, F = {}, V = nil, V0 = nil, skip = {}, skipped = 0,
    walk = root and W .. 'walk' or W .. 'lanes:' .. name, tags = root and W .. 'tags' or W .. 'ltags:' .. name,
    heads = root and W .. 'heads' or W .. 'heads:' .. name, field = root and 'V' or 'V:' .. name,
  }
  nodes[name] = N
  return N
end

local function node(name)
  return nodes[name] or new_node(name)
end

-- V of a node, which is read when it is first asked for: of most nodes nobody asks.
local function time_of(N)
  if not N.V then
    local V = (not pool.ordered or (pool.wfq and N.name == '')) and redis.call('HGET', W .. 'policy', N.field)
    N.V = tonumber(V or 0)
    N.V0 = N.V
  end
  return N.V
end

local function has_lifted(N) return N.V and N.V > N.V0 end

-- Reads V of many tenants at once.
local function load_nodes(names)
  if pool.ordered or #names == 0 then return end
  local fields = {}
  for i, name in ipairs(names) do fields[i] = 'V:' .. name end
  local V = redis.call('HMGET', W .. 'policy', unpack(fields))
  for i, name in ipairs(names) do
    local N = node(name)
    if not N.V then
      N.V = tonumber(V[i] or 0)
      N.V0 = N.V
    end
  end
end

-- Does (S, m) come before (S2, m2)? Ties go by the member's bytes.
local function before(S, m, S2, m2)
  if S ~= S2 then return S < S2 end
  return less(m, m2)
end

-- `order` holds {S, c, member}.
local function place(N, c, S)
  local order, m = N.order, member_of(c, N.tie[c])
  local low, high = 1, #order + 1
  while low < high do
    local mid = math.floor((low + high) / 2)
    if before(order[mid][1], order[mid][3], S, m) then low = mid + 1 else high = mid end
  end
  if not N.bound or before(S, m, N.bound[1], N.bound[2]) then
    table.insert(order, low, {S, c, m})
  end
end

local function displace(N, c, S)
  if not S or not N.order then return end
  for i, entry in ipairs(N.order) do -- nearly always the first
    if entry[2] == c then
      table.remove(N.order, i)
      return
    end
  end
end

-- S of child c, or nil when it is not in the walk.
local function score(N, c)
  local S = N.S[c]
  if S == nil then
    local tie = not pool.ties and '' or redis.call('HGET', N.heads, c)
    S = tie and tonumber(redis.call('ZSCORE', N.walk, tie .. c) or nil) or false
    N.S[c], N.tie[c], N.stored[c] = S, tie, S and tie
  end
  return S or nil
end

local put, drop
do -- a script has 200 local names at most
-- The first of the hidden children (`hide`).
local function find_hidden(N)
  N.hidden, N.hidden_tie = nil, nil
  for c in pairs(N.skip) do
    if not N.hidden or before(N.S[c], N.tie[c], N.hidden, N.hidden_tie) then
      N.hidden, N.hidden_tie = N.S[c], N.tie[c]
    end
  end
end

-- Call `score` first: what the store holds of c must be known.
function put(N, c, S, tie)
  displace(N, c, N.S[c])
  N.S[c], N.tie[c], N.dirty[c] = S, tie or '', true
  if N.skip[c] then find_hidden(N) elseif N.order then place(N, c, S) end
end

function drop(N, c)
  displace(N, c, N.S[c])
  N.S[c], N.dirty[c] = false, true
  if N.skip[c] then -- what is gone holds nothing back
    N.skip[c], N.skipped = nil, N.skipped - 1
    find_hidden(N)
  end
end
end

local function flush(N)
  if pool.floors and N.name == '' then floor.flush(N) end
  if not next(N.dirty) and not next(N.F) then return end
  local add, remove, tag_add, tag_remove, heads, headless = {}, {}, {}, {}, {}, {}
  for c in pairs(N.dirty) do
    local S, tie, stored = N.S[c], N.tie[c], N.stored[c]
    if S then push(add, S, tie .. c) end
    if stored and not (S and stored == tie) then push(remove, stored .. c) end
    if pool.ties and S and stored ~= tie then push(heads, c, tie) end
    if pool.ties and stored and not S then push(headless, c) end
    N.stored[c] = S and tie
  end
  for c, F in pairs(N.F) do
    if F then push(tag_add, F, c) else push(tag_remove, c) end
  end
  variadic('ZADD', N.walk, add)
  variadic('ZADD', N.tags, tag_add)
  variadic('ZREM', N.walk, remove)
  variadic('ZREM', N.tags, tag_remove)
  variadic('HSET', N.heads, heads)
  variadic('HDEL', N.heads, headless)
  N.dirty, N.F = {}, {}
end

-- Reads the first n children into memory; from then on `least` costs nothing. What lies past the bound stays unread.
-- Writes nothing: children changed in memory are read around and put in their place.
local function load_order(N, n)
  if N.order and (not N.bound or #N.order >= n) then return end
  n = n + N.skipped
  for _ in pairs(N.dirty) do n = n + 1 end
  local found = redis.call('ZRANGE', N.walk, 0, n - 1, 'WITHSCORES')
  N.order, N.bound = {}, nil
  for i = 1, #found, 2 do
    local m = found[i]
    local c, tie = id_of(m), tie_of(m)
    if not N.dirty[c] then
      N.S[c], N.tie[c], N.stored[c] = tonumber(found[i + 1]), tie, tie
      if not N.skip[c] then push(N.order, {N.S[c], c, m}) end
    end
  end
  if #found == 2 * n then N.bound = {tonumber(found[2 * n]), found[2 * n - 1]} end
  for c in pairs(N.dirty) do
    if N.S[c] and not N.skip[c] then place(N, c, N.S[c]) end
  end
end

-- (S, c, number of submission) of the first child, or nil. With a bound, a prefix that ran out is not an empty walk: it
-- is read again.
local function least(N)
  if N.order and #N.order == 0 and N.bound then load_order(N, 100) end
  if N.order then
    local first = N.order[1]
    if first then return first[1], first[2], N.tie[first[2]] end
    return nil
  end
  flush(N)
  local found = redis.call('ZRANGE', N.walk, 0, 0, 'WITHSCORES')
  if not found[1] then return nil end
  return tonumber(found[2]), id_of(found[1]), tie_of(found[1])
end

-- Finish tag of a child out of the walk; one that is not ahead of V counts as none.
local function tag(N, c)
  local F = N.F[c]
  if F == nil then F = tonumber(redis.call('ZSCORE', N.tags, c) or nil) end
  if F and F > time_of(N) then return F end
  if F then -- V has passed it: it goes
    N.F[c] = false
    if N.name == '' then gone_tenants[c] = true end
  end
  return nil
end

-- A hidden child (a suspect that this worker must pass over) stays in the walk and holds V back.
local function hide(N, c)
  local S = score(N, c)
  displace(N, c, S)
  if N.name == '' then displace(floor, c, S) end
  N.skip[c], N.skipped = true, N.skipped + 1
  if not N.hidden or before(S, N.tie[c], N.hidden, N.hidden_tie) then N.hidden, N.hidden_tie = S, N.tie[c] end
end

local function lift(N, F)
  local S = least(N)
  if N.hidden then S = math.min(S or N.hidden, N.hidden) end
  S = S or F -- F: the end of a busy period
  if S then N.V = math.max(time_of(N), S) end
end

-- ring: c goes to the end.
local function turn(N, c)
  N.V = time_of(N) + 1
  put(N, c, N.V)
end

local function enter(N, c)
  if pool.ring then return turn(N, c) end
  local F = tag(N, c)
  if F then
    N.F[c] = false
    put(N, c, F)
    lift(N)
  else
    put(N, c, time_of(N)) -- never above V, so V need not be lifted
  end
end

local function leave(N, c)
  local F = score(N, c)
  drop(N, c)
  if pool.ring then return end
  if F > time_of(N) then N.F[c] = F end
  lift(N, F)
end

-- Charges (x > 0) or refunds (x < 0) a child. `f` stands in for a finish tag that is gone. The caller lifts, with the
-- finish tag that is answered for a child out of the walk.
local function add(N, c, x, f)
  local S = score(N, c)
  if S then
    put(N, c, S + x)
    return nil
  end
  local F = (tag(N, c) or f) + x
  N.F[c] = F > time_of(N) and F
  if N.name == '' and F <= N.V then gone_tenants[c] = true end
  return F
end

local flush_nodes
do -- a script has 200 local names at most
-- Drops the tags that V has passed (at most 64 a call), and what a tenant leaves behind when it has neither a waiting
-- job nor a finish tag: V:<tenant>, its lane tags.
local function forget_tenants(names)
  if #names == 0 then return end
  local fields, keys = {}, {}
  local waiting = redis.call('ZMSCORE', P .. 'tenants', unpack(names))
  for i, t in ipairs(names) do
    local idle = (tonumber(waiting[i] or nil) or 0) <= 0
    if idle and not score(nodes[''], t) and not tag(nodes[''], t) then
      push(fields, 'V:' .. t)
      push(keys, W .. 'lanes:' .. t, W .. 'ltags:' .. t)
      push(keys, W .. 'heads:' .. t)
    end
    if idle and pool.old then -- `clear_away` (moving.lua) may not hear of it any more
      push(keys, P .. pool.old.mark .. 'ltags:' .. t, P .. pool.old.mark .. 'heads:' .. t)
    end
  end
  if #fields > 0 then redis.call('HDEL', W .. 'policy', unpack(fields)) end
  unlink(keys)
end

-- Writes everything that is still in memory. Called once, at the end of a script that touched nodes.
function flush_nodes()
  local root, V = node(''), {}
  for _, N in pairs(nodes) do
    flush(N)
    if has_lifted(N) then push(V, N.field, N.V) end
  end
  if pool.wfq and has_lifted(root) then push(V, 'Vt', now) end -- since then it has passed nobody (inspection/shares.py)
  if floor.run ~= floor.run0 then push(V, 'floor_run', floor.run) end
  local forgotten = {}
  for name, boost in pairs(boosts) do
    if boost then push(V, 'b:' .. name, boost) else push(forgotten, 'b:' .. name) end
  end
  variadic('HDEL', W .. 'policy', forgotten)
  variadic('HSET', W .. 'policy', V)
  local passed, tagged = {}, pool.tiered or pool.wfq
  if not tagged then
    passed = redis.call('ZRANGE', root.tags, 0, 63) -- left by another policy
    variadic('ZREM', root.tags, passed)
  end
  local lifted, keys = {}, {}
  for _, N in pairs(nodes) do
    if tagged and has_lifted(N) then
      push(lifted, N)
      if N ~= root then push(keys, N.tags) end
    end
  end
  -- Of many tenants mostly none has tags.
  if #keys > 1 and redis.call('EXISTS', unpack(keys)) == 0 then lifted = {has_lifted(root) and root or nil} end
  for _, N in ipairs(lifted) do
    local tags = redis.call('ZRANGEBYSCORE', N.tags, '-inf', N.V, 'LIMIT', 0, 64)
    variadic('ZREM', N.tags, tags)
    if N == root then passed = tags end
  end
  for t in pairs(gone_tenants) do push(passed, t) end
  forget_tenants(passed)
end
end
--- @include "floor"
