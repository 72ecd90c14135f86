-- Changes of a pool's dispatch mode and of what a leader keeps for its policy. To scheduled: the pending jobs stay
-- where they are, and the leader is told. To direct: ready goes first, then the workers admit what is left of ingress.
local function change_mode(mode)
  if mode == (pool.scheduled and 'scheduled' or 'direct') then return end
  pool.scheduled = mode == 'scheduled'
  pool.leftover = not pool.scheduled
  if pool.scheduled then
    redis.call('HSET', P .. 'conf', 'mode', mode)
    redis.call('HDEL', P .. 'conf', 'leftover')
  else
    redis.call('HSET', P .. 'conf', 'leftover', 1)
    redis.call('HDEL', P .. 'conf', 'mode')
  end
end

-- Another policy comes: what a leader kept for this one is of no use to it.
local function forget_flush()
  local last = redis.call('HGET', P .. 'marks', 'flush')
  if last then unlink({P .. 'flushed:' .. last}) end
  unlink({P .. 'entered', P .. 'corrections'})
end

local READY_PAGE = 200

-- The slots of dispatched jobs, for scopes that have a ceiling only now: a page of those after number `from`. Answers
-- the number of its last one, nil = there are no more. What is leased meanwhile is found in `active` afterwards.
local function fill_from_ready(filling, fills_pool, from)
  local page = redis.call('ZRANGEBYSCORE', P .. 'ready', '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, READY_PAGE)
  for i = 1, #page, 2 do
    local id = page[i]
    local run = read_run(id)
    local since = run and redis.call('HGET', P .. 'run:' .. id, 'dt')
    for _, field in ipairs(since and {'t:' .. run.t, 'l:' .. run.t .. '|' .. run.l} or {}) do
      if filling[field] then redis.call('ZADD', P .. 'slots:' .. field, since, id) end
    end
    if since and fills_pool then redis.call('ZADD', P .. 'slots:p', since, id) end
  end
  return #page == 2 * READY_PAGE and page[#page] or nil
end
