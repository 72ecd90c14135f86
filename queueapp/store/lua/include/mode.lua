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

-- The slots of dispatched jobs, for scopes that have a ceiling only now; there are not more than fit in the window.
local function fill_from_ready(filling, fills_pool)
  for _, id in ipairs(redis.call('ZRANGE', P .. 'ready', 0, -1)) do
    local run = read_run(id)
    local since = run and redis.call('HGET', P .. 'run:' .. id, 'dt')
    for _, field in ipairs(since and {'t:' .. run.t, 'l:' .. run.t .. '|' .. run.l} or {}) do
      if filling[field] then redis.call('ZADD', P .. 'slots:' .. field, since, id) end
    end
    if since and fills_pool then redis.call('ZADD', P .. 'slots:p', since, id) end
  end
end
