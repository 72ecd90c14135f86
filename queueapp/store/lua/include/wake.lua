--- @include "generations"
-- Wake protocol. Token `w` stands in `wake` exactly while something can be leased now; one token wakes one parked
-- worker, whose own call arms again if work remains. Token `t` says that something becomes due earlier than was known.
-- Under scheduled dispatch only `ready` can be leased, and a token in `wake:leader` wakes the leader: something came to
-- ingress, or the walk has work while the window (as the leader last named it) is open. Each such leader waits in one
-- blocking read and works until there is nothing left to do.
local walk_has_work, arm
do -- a script has 200 local names at most
function walk_has_work()
  if not pool_open() then return false end
  local root = node('')
  for _, S in pairs(root.S) do
    if S then return true end -- this call put it there, or met it
  end
  return least(root) and true or false
end

local function window_open()
  local window = tonumber(redis.call('HGET', P .. 'marks', 'window') or nil)
  return not window or window > redis.call('ZCARD', P .. 'ready') + redis.call('ZCARD', P .. 'active')
end

local function arm_leader()
  if redis.call('XLEN', P .. 'ingress') > 0 or ((walk_has_work() or generation.holds_jobs()) and window_open()) then
    redis.call('ZADD', P .. 'wake:leader', 0, 'i')
  end
end

local function leasable()
  if pool.scheduled then return not pool.paused and redis.call('EXISTS', P .. 'ready') == 1 end
  if walk_has_work() or (generation.holds_jobs() and pool_open()) then return true end
  return pool.leftover and (redis.call('XLEN', P .. 'ingress') > 0
    or not pool.paused and redis.call('EXISTS', P .. 'ready') == 1)
end

function arm()
  if pool.scheduled then arm_leader() end
  if leasable() then
    redis.call('ZADD', P .. 'wake', 0, 'w')
    return 1
  end
  redis.call('ZREM', P .. 'wake', 'w')
  return 0
end
end

-- Call before adding a member that is due at `due` to a set scored by time.
local function wake_if_earlier(set, due)
  local head = redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
  if not head[1] or due < tonumber(head[2]) then
    redis.call('ZADD', P .. 'wake', 0, 't')
  end
end

-- Milliseconds until a scheduled, parked or expiring job becomes due, a tenant or lane has a token again, or a key with
-- waiters is looked at; -1 = none.
local function next_due()
  local due, sets = nil, {'scheduled', 'expiring'}
  if pool.parks then push(sets, 'backlog') end
  if pool.rated then push(sets, 'timers') end
  if pool.sweeps then push(sets, 'sweeps') end
  for _, set in ipairs(sets) do
    local head = redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
    if head[1] then due = math.min(due or tonumber(head[2]), tonumber(head[2])) end
  end
  local look = pool.keyed and redis.call('ZRANGE', W .. 'waitkeys', 0, 0, 'WITHSCORES') or {}
  if look[1] then due = math.min(due or tonumber(look[2]), tonumber(look[2])) end
  return due and math.max(0, math.floor(due) - now) or -1
end

-- Tells the processes that wait for these jobs' results (see `await`).
local function answer_waiters(ids)
  if #ids == 0 or redis.call('EXISTS', P .. 'waiters') == 0 then return end
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    local waiters = redis.call('HMGET', P .. 'waiters', unpack(ids, first, last))
    for i = first, last do
      local found = waiters[i - first + 1]
      for waiter in string.gmatch(found or '', '%S+') do
        local key = P .. 'done:' .. waiter
        redis.call('RPUSH', key, ids[i])
        redis.call('LTRIM', key, -10000, -1)
        redis.call('PEXPIRE', key, 60000)
      end
      if found then redis.call('HDEL', P .. 'waiters', ids[i]) end
    end
  end
end
