-- What becomes of the jobs that a pick found, whether they are leased at once (lease.lua) or dispatched (dispatch.lua),
-- and of what it met on the way.
local write_picked, leave_picked, commit_rest
do -- a script has 200 local names at most

-- Writes the hash of a picked job: `fields`, and what the pick decided. False: its key has a wrong type, so that it is
-- set aside. A job from ready was picked before.
function write_picked(found, job, fields)
  local row, run, key = job.row, job.run, P .. 'run:' .. job.id
  if not job.ready then
    push(fields, 't', row.tenant)
    push(fields, 'n', row.task)
    push(fields, 'sm', row.submitted)
    push(fields, 'ch', job.ch or '')
    push(fields, 'fs', job.fs or 0)
    if pool.gen > 0 then push(fields, 'gn', pool.gen) end
    if pool.kept then push(fields, 'r', string.format('%s|%.17g', pool.kept, job.r)) end
    if row.lane ~= 'main' then push(fields, 'l', row.lane) end
    if row.delay and not run then push(fields, 'rd', row.submitted + row.delay) end
    if row.keys then push(fields, 'k', row.keys) end
    if run and run.r and not pool.kept then redis.call('HDEL', key, 'r') end
  end
  local written = redis.pcall('HSET', key, unpack(fields))
  if type(written) ~= 'table' then return true end
  untake_slots(job.id)
  push(found.broken, {id = job.id, t = row.tenant, l = row.lane, set = job.set, member = job.member, ks = row.keys})
  return false
end

-- It leaves its queue, and its tenant had it: slots are taken, the turn was charged.
function leave_picked(job)
  leave_queue(job.set, job.member, job.row.keys, true)
  count_lease(job.row.tenant, job.ch)
end

local function leave_broken(bad)
  local row, run = bad.row, bad.run
  local t, l, ks = bad.t or row and row.tenant or run and run.t, bad.l or row and row.lane, bad.ks or run and run.k
  set_aside(bad.id, true, t, ks)
  if bad.ready then
    remove_from('ready', bad.id)
    if t and release_slots(t, l or run and run.l, bad.id) then touch(t, l or run and run.l) end
    if ks then sub.release(ks, bad.id) end
  else
    leave_queue(bad.set, bad.member, bad.ks)
    touch(bad.t, bad.l)
  end
end

-- Expired and cut jobs end, broken ones are set aside, paused ones of ready go back, full sub-lanes step aside,
-- suspects that were passed over remember since when.
function commit_rest(found)
  for _, gone in ipairs(found.expired) do
    local ready = gone.run and gone.run.s == 'r'
    leave_waiting(gone.id, gone.row, ready and 'r' or 'p', gone.run)
    to_ended(gone.id, gone.outcome or 'expired', identity(gone.row), gone.row.keys)
  end
  for _, bad in ipairs(found.broken) do leave_broken(bad) end
  for _, job in ipairs(found.back) do back_to_line(job.id, job.row, job.run) end
  for _, set in ipairs(found.aside) do sub.touch(set) end
  for _, id in ipairs(found.passed) do redis.call('HSET', P .. 'run:' .. id, 'sp', now) end
end
end
