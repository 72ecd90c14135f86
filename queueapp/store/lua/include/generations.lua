-- A change of policy while work waits, without a stop. All structures of the waiting work belong to a generation (conf
-- `gen`, 0 when absent); the names of odd ones begin with `~` (W in shard.lua). `configure` begins the next one, empty,
-- and conf `old` says by which rule the last one stands. From then on whatever becomes pending, new or returned, enters
-- the new generation, and every lease comes from there. The old one is moved over in bounded shares, in its old order:
-- each job keeps its number of submission and is ranked by the new rule (where Lua does not know it, the job goes to
-- ingress). A share runs in each call that leases or dispatches, before the pick, so that nobody is idle while old work
-- may run, and as a duty of every scheduler (moving.lua, rerank.lua).
--
-- conf `old` = policy|by|step|total|phase|cursor, conf `moved` = jobs that left the old generation. Phases:
--   w  the old walk: read, never followed by a pick
--   l  what did not stand in it, paused or full when the change came: each of those has an entry in `limits`, which are
--      gone through. Whose entry changes meanwhile is put back into the old walk by `configure` (expose)
--   s  sub-lanes that waited for a key: all that have jobs stand in `sublanes`
--   t  no job is left: what stands alone, the tags, the lanes and heads of their tenants
--   n  who waited for a key, the lanes and heads of all other tenants. Then `old` goes
-- In w, l and s the old walk comes first in every share. Who ends while he stands in the old generation leaves its
-- queue, and the pointer of his sub-lane follows; of his lane and tenant nothing changes there: a pointer to nothing is
-- dropped when it is met.
--
-- Replays and deaths: a share is one script; it takes what stands there at that moment, and writes the new place of a
-- job before the old one goes. Met again in the old generation, a job that is no longer pending is only taken out.
local generation = {}
do -- a script has 200 local names at most
local RULE = {'policy', 'by', 'step', 'tiered', 'ring', 'wfq', 'ordered', 'mirrored', 'ties', 'mark'}

-- Names and rule of the other generation, until it is called again.
function generation.turn_over()
  local old = pool.old
  for _, field in ipairs(RULE) do pool[field], old[field] = old[field], pool[field] end
  W = P .. pool.mark
end

-- May a job still stand in the old generation?
function generation.holds_jobs()
  return pool.old and string.find('wls', pool.old.phase, 1, true) and true or false
end

-- Jobs leave a queue of the old generation. A sub-lane's pointer goes to what stands first there then, or goes.
function generation.take_out(set, members)
  local queue, ks = string.match(set, '^(.+)|@(.+)$')
  local first = queue and redis.call('ZRANGE', P .. set, 0, 0)[1]
  local gone = 0
  for from = 1, #members, 4000 do
    gone = gone + redis.call('ZREM', P .. set, unpack(members, from, math.min(from + 3999, #members)))
  end
  if gone > 0 then redis.call('HINCRBY', P .. 'conf', 'moved', gone) end
  local now_ = first and redis.call('ZRANGE', P .. set, 0, 0, 'WITHSCORES') or {}
  if not first or first == now_[1] then return end
  local function pointer_to(member) return (pool.old.ties and string.sub(member, 1, 12) or '') .. '@' .. ks end
  if not now_[1] then redis.call('ZREM', P .. pool.old.mark .. 'sublanes', string.sub(set, #pool.old.mark + 1)) end
  -- One that waits for a key has no pointer.
  if redis.call('ZREM', P .. queue, pointer_to(first)) == 1 and now_[1] then
    redis.call('ZADD', P .. queue, now_[2], pointer_to(now_[1]))
  end
end

-- Puts lane l of t (nil: the tenant alone) back into the old walk, where it has something there. One that stands there
-- already is met twice, which does no harm.
function generation.expose(t, l)
  if not generation.holds_jobs() then return end
  generation.turn_over()
  local tie = pool.ties and string.rep('0', 12) or ''
  if l and redis.call('EXISTS', W .. 'q:' .. t .. '|' .. l, W .. 'qc:' .. t .. '|' .. l) > 0 then
    redis.call('ZADD', W .. 'lanes:' .. t, 'NX', 0, tie .. l)
  end
  if redis.call('EXISTS', W .. 'lanes:' .. t) == 1 then redis.call('ZADD', W .. 'walk', 'NX', 0, tie .. t) end
  generation.turn_over()
end

-- From here on the names are those of the next generation. The caller sets its rule.
function generation.begin(waiting)
  local elsewhere = redis.call('XLEN', P .. 'ingress')
  for _, set in ipairs({'scheduled', 'ready', 'backlog'}) do elsewhere = elsewhere + redis.call('ZCARD', P .. set) end
  local text = string.format('%s|%s|%.0f|%.0f', pool.policy, pool.by, pool.step, math.max(0, waiting - elsewhere))
  redis.call('HSET', P .. 'conf', 'gen', pool.gen + 1, 'old', text .. '|w|0', 'moved', 0)
  pool.old = old_generation(text .. '|w|0', 0)
  pool.old.mark, pool.mark = pool.mark, pool.old.mark
  pool.gen, W = pool.gen + 1, P .. pool.mark
end
end
