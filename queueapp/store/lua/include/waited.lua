-- What a job waited for, until its last lease began. Four parts, which add up exactly to what lies between its
-- submission and that moment but for the time in earlier attempts:
--   schedule  its own moment: run_after, delay, a debounce; of a parked job its conforming moment
--   backoff   from the end of an attempt until it might be tried again: the backoff of a retry, the delay of an unknown
--             task, the time as a dead letter
--   limits    its own limits (blocks.lua)
--   line      all the rest: others' turn, the pool's pause and ceiling, no free slot, no leader
-- In the run hash, each written when it is not 0: ws, wb, wl the first three so far, wa the time in earlier attempts,
-- le the end of the last one; ue where its limits stood when it came into line again; us, of a job in ready, what it
-- waited for them by then; tw the parts of this lease alone, if it is not the first, for a repeated reply. The line is
-- what is left. A job that came into line at once, was never held back and is leased once writes none.
local waited = {}
do -- a script has 200 local names at most

-- What the limits of a picked job cost it since it came into line.
local function by_limits(job)
  local row, run, stood = job.row, job.run, nil -- below 0: it brought along what it had waited before
  if run then stood = run.ue else stood = row.stood end
  if not stood and not pool.blocks then return 0 end
  return math.max(0, blocks.stands(row.tenant, row.lane, row.keys and job.set) - (stood or 0))
end

-- A picked job goes to ready. `fields` are those of its hash, as in all of these.
function waited.dispatched(job, fields)
  local spent = by_limits(job)
  if spent > 0 or (job.run and job.run.us > 0) then push(fields, 'us', spent) end
end

-- The parts as a reply tells them.
function waited.told(schedule, backoff, limits)
  if schedule + backoff + limits == 0 then return '' end
  return string.format('%.0f|%.0f|%.0f', schedule, backoff, limits)
end

-- A job is leased. Answers the parts of this wait.
function waited.leased(job, fields)
  local row, run = job.row, job.run
  local limits
  if job.ready then limits = run.us else limits = by_limits(job) end
  local began, schedule, backoff = tonumber(row.submitted), row.delay or 0, 0
  if run and run.le then
    push(fields, 'le', '')
    backoff = math.max(0, (tonumber(run.rd or nil) or run.le) - run.le)
    if run.st then
      began, schedule = run.le, 0
      push(fields, 'wa', run.wa + math.max(0, run.le - run.st))
    end
  end
  if schedule > 0 then push(fields, 'ws', schedule) end
  if backoff > 0 then push(fields, 'wb', run.wb + backoff) end
  if limits > 0 then push(fields, 'wl', (run and run.wl or 0) + limits) end
  if run and run.st then push(fields, 'tw', waited.told(schedule, backoff, limits)) end
  return schedule, backoff, limits, math.max(0, now - began - schedule - backoff - limits)
end

-- What the lane of a job stands at that comes into line. In ingress it is no sub-lane's yet.
function waited.stands(row, ingress)
  local t, l, ks = row.tenant, row.lane, row.keys
  return blocks.stands(t, l, ks and not ingress and sub_lane(queue_of(t, l, row.tier), ks))
end

-- The same of a job of `enqueue`; nil = 0.
function waited.stood(j)
  local tier = j.tier == 'continue' and 'c' or ''
  local stands = waited.stands({tenant = j.tenant, lane = j.lane, tier = tier, keys = j.keys}, pool.scheduled)
  return stands > 0 and stands or nil
end

-- A job that has no hash, of this state and place, came into line when its lane stood at `stood`: its row is written
-- anew.
function waited.remember(id, state, seq, stood)
  local text = redis.call('GET', P .. 'job:' .. id)
  redis.call('SET', P .. 'job:' .. id, (string.gsub(text, '^.1%x%x%x%x%x%x%x%x%x%x%x%x(%d+%+?%d*)@?%-?%d*',
    state .. '1' .. seq .. '%1' .. string.format('@%.0f', stood), 1)))
end

-- A job in line goes over from sub-lane `queue` to that of another policy, or to ingress.
function waited.goes_over(id, row, run, queue, ingress)
  local shift = waited.stands(row, ingress) - blocks.stands(row.tenant, row.lane, queue)
  if shift == 0 then return end
  if run then
    redis.call('HSET', P .. 'run:' .. id, 'ue', (run.ue or 0) + shift)
  else
    waited.remember(id, row.state, row.seq, (row.stood or 0) + shift)
  end
end

-- A job that has a hash comes into line; `spent`: what it waited for its limits before, where it did not run meanwhile.
function waited.comes(run, row, fields, spent, ingress)
  local stands = waited.stands(row, ingress) - (spent or 0)
  if stands ~= 0 or run.ue then push(fields, 'ue', stands) end
end
end
