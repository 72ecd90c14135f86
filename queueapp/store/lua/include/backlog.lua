-- The backlog: jobs that came above a rate and were parked until their own conforming time. State b.
--   backlog                ZSET  all of them by that time, which is when they are due
--   bl:<tenant>            ZSET  those of tier start of one tenant, by the same
--   blc:<tenant>           ZSET  those of tier continue
--   blturns, blcturns      ZSET  tenants that have such, by the time of the first
--   conf parks             somebody is parked; without it no script looks for any of it
-- Whose time has come is due; `draw` (draw.lua) takes of the due ones, and a rate is not asked again.
local backlog = {}
do -- a script has 200 local names at most
local changed = {} -- tier|tenant of this call

function backlog.line(t, tier) return 'bl' .. tier .. ':' .. t end

function backlog.enter(id, t, tier, due)
  wake_if_earlier('backlog', due)
  append(moves.add, 'backlog', due, id)
  append(moves.add, backlog.line(t, tier), due, id)
  changed[tier .. '|' .. t] = true
  if not pool.parks then
    redis.call('HSET', P .. 'conf', 'parks', 1)
    pool.parks = true
  end
end

function backlog.leave(id, t, tier)
  remove_from('backlog', id)
  remove_from(backlog.line(t, tier), id)
  changed[tier .. '|' .. t] = true
end

-- After the moves: the turns of the tenants that they concern.
function backlog.write()
  if not next(changed) then return end
  for name in pairs(changed) do
    local tier, t = string.match(name, '^(c?)|(.+)$')
    local first = redis.call('ZRANGE', P .. backlog.line(t, tier), 0, 0, 'WITHSCORES')
    if first[1] then
      redis.call('ZADD', P .. 'bl' .. tier .. 'turns', first[2], t)
    else
      redis.call('ZREM', P .. 'bl' .. tier .. 'turns', t)
    end
  end
  changed = {}
  if redis.call('EXISTS', P .. 'backlog') == 0 then
    redis.call('HDEL', P .. 'conf', 'parks')
    pool.parks = false
  end
end
end
