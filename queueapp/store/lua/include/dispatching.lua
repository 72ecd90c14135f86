-- Pending → ready: the commit of what a leader's pick found.
local function commit_dispatch(found, epoch)
  local jobs, placed = found.jobs, {}
  local first = #jobs > 0 and redis.call('HINCRBY', P .. 'marks', 'dispatched', #jobs) - #jobs
  for i, job in ipairs(jobs) do
    local fields = {'s', 'r', 'ep', epoch, 'dt', now}
    waited.dispatched(job, fields)
    if write_picked(found, job, fields) then
      leave_picked(job)
      push(placed, first + i, job.id)
    else
      job.failed = true
    end
  end
  variadic('ZADD', P .. 'ready', placed)
  commit_rest(found)
  if #placed > 0 then count('dispatched', #placed / 2) end
  return #placed / 2
end

-- What became of each pick, with the lane as it stands after all of them, of which `entered` need not tell then.
local function tell_taken(found)
  local rows, told = {}, {}
  for i, pick_ in ipairs(found.taken or {}) do
    local t, l, outcome, job = pick_[1], pick_[2], pick_[3], found.jobs[pick_[5]]
    local taken, now_ = outcome == 'taken' and not job.failed, {}
    if outcome == 'taken' and not taken then outcome = 'blocked' end
    if outcome ~= 'unasked' then
      now_ = mirror_row(t, l)
      push(told, t .. '|' .. l, t .. '|')
    end
    rows[i] = {
      t, l, outcome, pick_[4] and 1 or 0, taken and job.id or '', taken and string.format('%.17g', job.r) or '0',
      taken and string.match(job.ch, '^[^|]+') or '0', now_, score(node(''), t) and 1 or 0,
    }
  end
  variadic('ZREM', P .. 'entered', told)
  return rows
end

-- The leader that asked hears in the reply whether there is more for it: only what came meanwhile shall wake it again.
local function settle_wake(more)
  if more or redis.call('XLEN', P .. 'ingress') > 0 then
    redis.call('ZADD', P .. 'wake:leader', 0, 'i')
  else
    redis.call('ZREM', P .. 'wake:leader', 'i')
  end
end
