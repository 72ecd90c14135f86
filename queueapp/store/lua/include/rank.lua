-- Order inside a lane: the lower rank runs first, equal ranks by the number of submission, `seq`, which is exact below
-- 2^53. queueapp/policies has each policy's definition and bound; here is the same arithmetic.
local rank, old_rank, take_seq
do -- a script has 200 local names at most
local PRIORITY_STEP = 35184372088832 -- 2^45: ranks between two priorities
local WITHOUT_DEADLINE = 8e15        -- later than any moment

local function clamp(priority)
  return math.max(-100, math.min(100, priority))
end

-- The rank of a job that becomes pending. `job` has tenant, lane, task number, priority, cost and deadline (nil = none)
-- as a row has them; `ready` is the moment from which its waiting counts. Under wfq the tenant's finish tag moves on.
function rank(job, seq, ready)
  local policy = pool.policy
  if pool.tiered then return seq - clamp(job.priority) * PRIORITY_STEP end
  if policy == 'priority' then return (100 - clamp(job.priority)) * PRIORITY_STEP + seq end
  if policy == 'aging' then return ready - clamp(job.priority) * pool.step end
  if policy == 'edf' then
    if not job.deadline then return WITHOUT_DEADLINE + seq end
    return pool.by == 'latest_start' and job.deadline - cost_of(job) or job.deadline
  end
  if pool.wfq then
    local root, t = node(''), job.tenant
    local F = (tag(root, t) or time_of(root)) + cost_of(job) / scope_of(t, job.lane).tenant.weight
    root.F[t] = F
    return F
  end
  return seq
end

-- The rank of a job that keeps its place: that of its lease, where the same rule gave it and no row can tell it again.
-- Without a row: that or nil.
function old_rank(run, row)
  local rule, r = string.match(run.r or '', '^([^|]+)|(.+)$')
  if rule and rule == pool.kept then return tonumber(r) end
  return row and rank(row, tonumber(row.seq, 16), ready_of(row, run))
end

-- Reserves n sequence numbers; the first of them.
function take_seq(n)
  return redis.call('HINCRBY', P .. 'marks', 'seq', n) - n + 1
end
end
