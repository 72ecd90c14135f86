-- How long a job's own limits held it back: its tenant or lane was paused, at its ceiling or without a token, or its
-- sub-lane waited for a concurrency key. The pool's pause and ceiling are the line's and are not told here.
--   blocks       HASH  t:<tenant>, l:<tenant>|<lane>, or a sub-lane's queue → sum|since|above
--   conf blocks  something stands there, 1; without it no script looks for any of it. 2: also of scopes that have no
--                limits any more, so that all are asked for; 1: only of scopes that have some, and of sub-lanes
-- sum: ms so far in which this scope held work back and nothing above it did; since: when it began to, of one that does
-- now; above: what stood above it then. So a lane stands at its own sum and its tenant's, a sub-lane at its own and its
-- lane's, and no moment counts twice, whatever overlaps. What a scope stands at grows by one a ms while anything of it
-- holds work back, else not at all. A job remembers where its lane or sub-lane stood when it came into line (`@` in its
-- row, `ue` in its hash; not written when that was 0) and asks again at its lease: the difference is what it waited for
-- its own limits.
-- A scope counts while it has work. With an ingress or an old generation, of whose work no walk knows, it counts at any
-- time. A sum goes when its tenant has nothing waiting (trim.lua), that of a sub-lane when it is empty: then nobody
-- remembers it.
local blocks = {changed = {}}
do -- a script has 200 local names at most
local known = {} -- scope → {sum, since, above}; false: there is none

local function parse(packed)
  local sum, since, above = string.match(packed or '', '^(%d+)|(%d*)|(%d*)$')
  return sum and {sum = tonumber(sum), since = tonumber(since), above = tonumber(above)} or false
end

-- Reads those scopes that are not known yet; `packed`: scope → its limits, which may be nil.
function blocks.load(scopes, packed)
  if not pool.blocks then return end
  local wanted = {}
  for i, scope in ipairs(scopes) do
    if known[scope] == nil and (packed[i] or pool.blocks == '2') then push(wanted, scope) end
  end
  if #wanted == 0 then return end
  for i, found in ipairs(redis.call('HMGET', P .. 'blocks', unpack(wanted))) do known[wanted[i]] = parse(found) end
end

local function sub_lane_of(queue)
  if known[queue] == nil and pool.blocks then known[queue] = parse(redis.call('HGET', P .. 'blocks', queue)) end
  return known[queue]
end

-- What a scope has by itself, above which stands `above`.
local function own(b, above)
  if not b then return 0 end
  return b.sum + (b.since and math.max(0, now - b.since - (above - b.above)) or 0)
end

-- What lane l of tenant t stands at; `queue`: its sub-lane, '' or nil = none.
function blocks.stands(t, l, queue)
  if not pool.blocks then return 0 end
  local name = scope_of(t, l).name
  local above = own(known['t:' .. t], 0)
  above = above + own(known['l:' .. name], above)
  return queue and above + own(sub_lane_of(queue), above) or above
end

-- Scope `b` holds work back from now on, or no more.
local function mark(scope, b, holds, above)
  if holds == (b and b.since and true or false) then return end
  b = {sum = own(b, above), since = holds and now or nil, above = above}
  known[scope], blocks.changed[scope] = b, b
end

function blocks.mark_tenant(t, holds)
  local scope = 't:' .. t
  mark(scope, known[scope], holds, 0)
end

function blocks.mark_lane(t, name, holds)
  local scope = 'l:' .. name
  mark(scope, known[scope], holds, own(known['t:' .. t], 0))
end

function blocks.mark_sub_lane(t, l, queue, holds)
  mark(queue, sub_lane_of(queue), holds, blocks.stands(t, l))
end

-- The sub-lane is empty: nobody remembers what it stood at.
function blocks.forget(queue)
  if sub_lane_of(queue) then known[queue], blocks.changed[queue] = false, false end
end

-- A scope loses its limits: from now on all are asked for.
function blocks.loosen(scope)
  if known[scope] and pool.blocks ~= '2' then
    redis.call('HSET', P .. 'conf', 'blocks', 2)
    pool.blocks = '2'
  end
end

function blocks.write()
  if not next(blocks.changed) then return end
  local set, gone = {}, {}
  for scope, b in pairs(blocks.changed) do
    if b then
      push(set, scope, string.format('%.0f|%s|%.0f', b.sum, b.since and string.format('%.0f', b.since) or '', b.above))
    else
      push(gone, scope)
    end
  end
  variadic('HSET', P .. 'blocks', set)
  variadic('HDEL', P .. 'blocks', gone)
  if #set > 0 and not pool.blocks then
    redis.call('HSET', P .. 'conf', 'blocks', 1)
    pool.blocks = '1'
  end
  blocks.changed = {}
end
end
