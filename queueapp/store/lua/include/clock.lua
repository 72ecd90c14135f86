-- One moment per script call: TIME moves within a script on Redis 7 and stands still on Valkey, so it is read once.
-- A step back of up to 5 s is clamped to the last moment seen; a larger one is accepted and counted, because a clamp
-- without bound would freeze a shard after a failover to a server whose clock is behind.
local now
do
  now = tonumber(ARGV[2])
  if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
end

-- Remembers the moment (at most one write a second) and clamps `now`. Scripts that write times call it first.
local function tick()
  local last = tonumber(redis.call('HGET', P .. 'marks', 'clock') or 0)
  if now < last and last - now <= 5000 then
    now = last
  elseif now < last then
    redis.call('HINCRBY', P .. 'stats', 'clock_steps', 1)
    redis.call('HSET', P .. 'marks', 'clock', now)
  elseif now - last >= 1000 then
    redis.call('HSET', P .. 'marks', 'clock', now)
  end
end
