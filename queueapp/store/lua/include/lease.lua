-- Leasing: the token (worker, seq), the commit of what `pick` found, and the rows of a reply.
-- A row of the reply: id, attempts, errors, crashes, lease start, deadline, task number, text of the row.
-- seq = stored: no new lease, the same jobs again. seq < stored: a call that came too late.
-- Rows that the call with this seq leased before.
local function leased_before(worker, seq)
  local rows = {}
  for _, id in ipairs(redis.call('SMEMBERS', P .. 'held:' .. worker)) do
    local run = read_run(id)
    if run and run.s == 'a' and redis.call('HGET', P .. 'run:' .. id, 'ls') == seq then
      local text = redis.call('GET', P .. 'job:' .. id)
      local deadline = tonumber(redis.call('ZSCORE', P .. 'active', id))
      read_history(run)
      push(rows, {id, run.a, run.e, run.c, run.st, deadline, run.n, text})
    end
  end
  return rows
end

local function set_aside(found)
  for _, bad in ipairs(found.broken) do
    redis.call('SADD', P .. 'quarantine', bad.id)
    redis.call('ZREM', P .. bad.set, bad.id)
    count('quarantined')
    count_waiting(bad.L.t, -1)
    touch(bad.L.t, bad.L.l)
  end
end

local function commit_leases(found, worker, seq, lease_ms, begin)
  local rows, members, deadlines = {}, {}, {}
  for i, job in ipairs(found.jobs) do
    local row, run, key = job.row, job.run, P .. 'run:' .. job.id
    local attempts, errors, crashes = 1, 0, 0
    if run then
      attempts, errors, crashes = run.a + 1, run.e, run.c
      if not run.s1 and run.st then redis.call('HSET', key, 's1', run.st) end
      if run.sp then redis.call('HDEL', key, 'sp') end
    end
    local begun = (i <= begin or crashes >= 2) and '1' or '0'
    redis.call(
      'HSET', key, 's', 'a', 'a', attempts, 'w', worker, 'ls', seq, 'st', now, 't', row.tenant, 'n', row.task,
      'sm', row.submitted, 'r', job.r, 'b', begun, 'ch', job.ch or '', 'fs', job.fs or 0
    )
    if row.lane ~= 'main' then redis.call('HSET', key, 'l', row.lane) end
    push(members, job.id)
    push(deadlines, now + lease_ms, job.id)
    remove_from(job.set, job.id)
    if row.expires then remove_from('expiring', job.id) end
    count_waiting(row.tenant, -1)
    rows[i] = {job.id, attempts, errors, crashes, now, now + lease_ms, row.task, job.text}
  end
  variadic('ZADD', P .. 'active', deadlines)
  variadic('SADD', P .. 'held:' .. worker, members)
  for _, gone in ipairs(found.expired) do
    leave_waiting(gone.id, gone.row, 'p')
    to_ended(gone.id, 'expired', identity(gone.row))
  end
  set_aside(found)
  for _, id in ipairs(found.passed) do redis.call('HSET', P .. 'run:' .. id, 'sp', now) end
  if #members > 0 then count('leased', #members) end
  return rows
end

-- Leases up to `want` jobs for `worker`; answers the rows, or nil for a call that came too late.
local function lease(worker, seq, want, begin, lease_ms)
  local known = redis.call('HMGET', P .. 'worker:' .. worker, 'seq', 'alone')
  local last = tonumber(known[1] or -1)
  if tonumber(seq) < last then return nil end
  if tonumber(seq) == last then return leased_before(worker, seq) end
  local held = redis.call('SCARD', P .. 'held:' .. worker)
  if held > 0 and known[2] and redis.call('SISMEMBER', P .. 'held:' .. worker, known[2]) == 1 then
    want = 0 -- a suspect runs alone
  end
  local found = want > 0 and pick(want, held == 0) or {jobs = {}, expired = {}, broken = {}, passed = {}}
  local rows = commit_leases(found, worker, seq, lease_ms, begin)
  local first = found.jobs[1]
  redis.call('HSET', P .. 'worker:' .. worker, 'seq', seq, 'alone', first and first.run and first.run.c >= 2 and first.id or '')
  redis.call('PEXPIRE', P .. 'worker:' .. worker, math.max(60000, lease_ms * 20))
  redis.call('ZADD', P .. 'workers', now, worker)
  return rows
end
