-- Order inside a lane. Lower runs first. seq is the order of submission, exact below 2^53.
-- tiered: priority sorts a lane's own work and never crosses lanes; p is clamped to -100..100, as in django.tasks.
local function shift(priority)
  if pool.policy ~= 'tiered' then return 0 end
  return math.max(-100, math.min(100, priority)) * 35184372088832
end

local function rank(seq, priority)
  return seq - shift(priority)
end

-- The place in line behind a rank: a lease remembers it, so that a job given back is ranked by the policy of that day.
local function seq_of(r, priority)
  return r + shift(priority)
end

-- Reserves n sequence numbers; the first of them.
local function take_seq(n)
  return redis.call('HINCRBY', P .. 'policy', 'seq', n) - n + 1
end
