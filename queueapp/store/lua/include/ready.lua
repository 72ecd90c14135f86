-- Ready: jobs that were dispatched and wait for a worker. ZSET ready, by the number of their dispatch (`marks`
-- dispatched). Such a job has its run hash: s = r, ch and fs (it is charged already), ep the epoch of the term that
-- dispatched it, dt when. Its slots are taken and travel with it, so that a lease never refuses it for a ceiling.
-- It counts as waiting until it is leased, and stays in `expiring`.
-- Out of ready otherwise: cancelled, expired, moved; its tenant or lane, or the pool, was paused; nobody leased it for
-- READY_MS. Then the slots are given back, the charge is refunded, and who does not end goes back to its old place.
local back_to_line, sweep_ready, pauses
do -- a script has 200 local names at most
local READY_MS = 30000

-- Gives back what a dispatched job has.
function leave_ready(id, row, run)
  remove_from('ready', id)
  if release_slots(run.t, run.l, id) then
    freed[run.t] = true
    push(moves.freed, {run.t, run.l})
  end
  if run.k then sub.release(run.k, id) end
  settle(run, 0, true)
  redis.call('HSET', P .. 'run:' .. id, 'ch', '')
end

-- Ready → pending, at the rank and the number of submission that it had.
function back_to_line(id, row, run)
  read_history(run)
  redis.call('HSET', P .. 'run:' .. id, 's', 'p')
  redis.call('HDEL', P .. 'run:' .. id, 'ep', 'dt')
  hash_holds_state(id)
  leave_ready(id, row, run)
  to_pending(id, run.t, run.l, row.tier, old_rank(run, row), row.seq, row.keys)
  count('withdrawn')
end

-- Must a dispatched job of this lane go back?
function pauses(t, l)
  local scope = scope_of(t, l)
  return pool.paused or scope.tenant.paused or scope.lane.paused
end

-- The first `limit` of ready: back to the line goes what is paused, and what has been there too long.
function sweep_ready(limit)
  if not pool.scheduled and not pool.leftover then return false end
  local ids, back = redis.call('ZRANGE', P .. 'ready', 0, limit - 1), 0
  for _, id in ipairs(ids) do
    local run = read_run(id)
    local row = run and read_row(id)
    if run and run.s == 'r' and row then -- what this very call leased stands here, too
      local dispatched = tonumber(redis.call('HGET', P .. 'run:' .. id, 'dt') or 0)
      if now - dispatched >= READY_MS or pauses(run.t, run.l) then
        back_to_line(id, row, run)
        back = back + 1
      end
    end
  end
  return back > 0 and #ids == limit
end
end
