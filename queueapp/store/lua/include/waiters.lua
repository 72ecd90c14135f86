--- @include "keysets"
-- Who waits for a concurrency key, and who of them is offered a slot first. The same in Python is
-- queueapp/policies/waiting.py. Only keys.lua calls this.
--   blocked:<digest>                            ZSET  `limit|pattern` → limit: the limits that waiters compare with
--   blocked:<digest>|<limit>|<pattern>          ZSET  group → turn. A group is a tenant, or under ordered policies `*`
--   blocked:<digest>|<limit>|<pattern>|<group>  ZSET  sub-lane → rank of its head; where ranks tie the
--                                                     member begins with the head's number of submission
--   turns:<digest>                              ZSET  tenant → its turn at this key; `*` → the turn woken last, V
-- By limit, so that a waiter whose limit has room never stands behind others whose limit has none: a look compares with
-- 64 different limits, the highest first. By tenant, because the walk forgets whoever leaves it: two tenants that come
-- back at V would be taken by name, each time the same one. So a key has turns of its own, start tags as in node.lua:
-- max(V, tag) when a tenant comes; each lease moves the tag by charge / weight (1 under ring). They are kept while
-- somebody waits.
local waiters = {}
do
local LIMITS_LOOKED_AT, TAGS_DROPPED = 64, 64

-- The names of the two inner sets in which sub-lane s waits for a key, and what leads there.
local function home(s, digest)
  local group, class = pool.ordered and '*' or s.t, '0|' -- a key that is not in the set: `verify` reports it
  for _, key in ipairs(keyset(s.ks)) do
    if key.digest == digest then class = string.format('%.0f|%s', key.limit, key.pattern) end
  end
  local outer = W .. 'blocked:' .. digest
  return outer, outer .. '|' .. class, outer .. '|' .. class .. '|' .. group, class, group
end

local function turn_of(digest, t)
  local tags = redis.call('ZMSCORE', W .. 'turns:' .. digest, '*', t)
  return math.max(tonumber(tags[1] or nil) or 0, tonumber(tags[2] or nil) or 0)
end

-- Sub-lane s waits at rank r with a head of this tie, from now on, or as before, with a head of the tie `old`. True =
-- it is the first of its limit.
function waiters.put(s, digest, r, tie, old)
  local outer, groups, set, class, group = home(s, digest)
  if old and old ~= tie then redis.call('ZREM', set, old .. s.set) end
  redis.call('ZADD', set, r, tie .. s.set)
  if redis.call('ZSCORE', groups, group) then return false end
  local first = redis.call('ZADD', groups, pool.ordered and 0 or turn_of(digest, group), group) == 1
  return redis.call('ZADD', outer, tonumber(string.match(class, '^%d+')), class) == 1 and first
end

-- True = nobody waits for the key any more.
function waiters.drop(s, digest, tie)
  local outer, groups, set, class, group = home(s, digest)
  redis.call('ZREM', set, tie .. s.set)
  if redis.call('EXISTS', set) == 1 then return false end
  redis.call('ZREM', groups, group)
  if redis.call('EXISTS', groups) == 1 then return false end
  redis.call('ZREM', outer, class)
  if redis.call('EXISTS', outer) == 1 then return false end
  redis.call('UNLINK', W .. 'turns:' .. digest)
  return true
end

local function sooner(a, b)
  if a.turn ~= b.turn or a.group ~= b.group then return before(a.turn, a.group, b.turn, b.group) end
  return before(a.r, a.member, b.r, b.member)
end

-- The first waiter whose limit has room when `woken` more run: its member, rank r and turn; or nil. And when the rate
-- lets one start that it holds back now, or nil.
function waiters.first(digest, woken)
  local outer, best, later = W .. 'blocked:' .. digest, nil, nil
  for _, class in ipairs(redis.call('ZRANGE', outer, 0, LIMITS_LOOKED_AT - 1, 'REV')) do
    local limit, pattern = string.match(class, '^(%d+)|(.*)$')
    local room, moment = room_of_key({digest = digest, limit = tonumber(limit), pattern = pattern}, woken)
    if moment then later = math.min(later or moment, moment) end
    if room > woken then
      local group = redis.call('ZRANGE', outer .. '|' .. class, 0, 0, 'WITHSCORES')
      local head = redis.call('ZRANGE', outer .. '|' .. class .. '|' .. (group[1] or ''), 0, 0, 'WITHSCORES')
      local found = head[1] and {
        member = head[1], r = tonumber(head[2]), group = group[1], turn = tonumber(group[2]),
      }
      if found and (not best or sooner(found, best)) then best = found end
    end
  end
  return best, later
end

-- A waiter with this turn is woken: whoever comes from now on is not before it.
function waiters.began(digest, turn)
  if not pool.ordered then redis.call('ZADD', W .. 'turns:' .. digest, 'GT', turn, '*') end
end

-- What this call leased moves its tenants' turns at the keys that somebody waits for. Tags that V has passed go.
function waiters.charge()
  for digest, by_tenant in pairs(key_charges) do
    local outer, tags = W .. 'blocked:' .. digest, W .. 'turns:' .. digest
    local classes = redis.call('ZRANGE', outer, 0, -1)
    for t, x in pairs(#classes > 0 and by_tenant or {}) do
      local tag = turn_of(digest, t) + x
      for _, class in ipairs(classes) do redis.call('ZADD', outer .. '|' .. class, 'XX', tag, t) end
      if redis.call('ZADD', tags, tag, t) == 1 then
        local V = redis.call('ZSCORE', tags, '*')
        local old = V and redis.call('ZRANGEBYSCORE', tags, '-inf', '(' .. V, 'LIMIT', 0, TAGS_DROPPED) or {}
        variadic('ZREM', tags, old)
      end
    end
  end
  key_charges = {}
end

-- Does somebody wait for the key who compares with the limit of one of these patterns?
function waiters.compare(digest, patterns)
  for _, class in ipairs(redis.call('ZRANGE', W .. 'blocked:' .. digest, 0, -1)) do
    if patterns[string.match(class, '|(.*)$')] then return true end
  end
  return false
end
end
