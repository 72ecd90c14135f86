-- Wake protocol. Token `w` stands in `wake` exactly while something can be leased now; one token wakes one parked
-- worker, whose own call arms again if work remains. Token `t` says that something becomes due earlier than was known.
local function arm()
  if pool_open() and (least(node('')) or node('').hidden) then
    redis.call('ZADD', P .. 'wake', 0, 'w')
    return 1
  end
  redis.call('ZREM', P .. 'wake', 'w')
  return 0
end

-- Call before adding a member that is due at `due` to a set scored by time.
local function wake_if_earlier(set, due)
  local head = redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
  if not head[1] or due < tonumber(head[2]) then
    redis.call('ZADD', P .. 'wake', 0, 't')
  end
end

-- Milliseconds until a scheduled or expiring job becomes due; -1 = none.
local function next_due()
  local due = nil
  for _, set in ipairs({'scheduled', 'expiring'}) do
    local head = redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
    if head[1] then due = math.min(due or tonumber(head[2]), tonumber(head[2])) end
  end
  return due and math.max(0, due - now) or -1
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
