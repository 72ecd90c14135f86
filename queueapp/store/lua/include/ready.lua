--- @include "again"
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

-- Ready → pending (or ingress: again.lua), at the rank and the number of submission that it had.
function back_to_line(id, row, run)
  read_history(run)
  redis.call('HDEL', P .. 'run:' .. id, 'ep', 'dt')
  leave_ready(id, row, run)
  place_again(id, row, run, {}, run.us)
  count('withdrawn')
end

-- Must a dispatched job of this lane go back?
function pauses(t, l)
  local scope = scope_of(t, l)
  return pool.paused or scope.tenant.paused or scope.lane.paused
end

-- Up to `limit` of ready: back to the line goes what is paused, and what has been there too long. With `after` (how
-- many of the first this call has leased) it ends at the first one that stays: all that follow were dispatched later,
-- and what was paused is withdrawn when the pause comes (configure), or met at the lease.
function sweep_ready(limit, after)
  if not pool.scheduled and not pool.leftover then return false end
  local from, back = after or 0, 0
  local ids = redis.call('ZRANGE', P .. 'ready', from, from + limit - 1)
  for _, id in ipairs(ids) do
    local seen = redis.pcall('HMGET', P .. 'run:' .. id, 's', 't', 'l', 'dt')
    if seen[1] == 'r' then -- what this very call leased stands here, too
      local goes = now - (tonumber(seen[4] or 0) or 0) >= READY_MS or pauses(seen[2], seen[3] or 'main')
      local row = goes and read_row(id)
      if row then
        back_to_line(id, row, read_run(id))
        back = back + 1
      elseif after and not goes then
        break
      end
    end
  end
  return back > 0 and #ids == limit
end
end
