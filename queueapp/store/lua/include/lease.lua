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
      push(rows, {id, run.a, run.e, run.c, tonumber(run.st), deadline, run.n, text})
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
    local row, run = job.row, job.run or {a = 0, c = 0, e = 0, f = 0}
    local fields = {
      's', 'a', 'a', run.a + 1, 'w', worker, 'ls', seq, 'st', now, 't', row.tenant, 'n', row.task,
      'sm', row.submitted, 'r', job.r, 'b', (i <= begin or run.c >= 2) and '1' or '0',
    }
    if row.lane ~= 'main' then push(fields, 'l', row.lane) end
    if job.ch then
      push(fields, 'ch', job.ch)
      push(fields, 'fs', job.fs)
    end
    if run.st and not run.s1 then push(fields, 's1', run.st) end
    redis.call('HSET', P .. 'run:' .. job.id, unpack(fields))
    if run.sp then redis.call('HDEL', P .. 'run:' .. job.id, 'sp') end
    push(members, job.id)
    push(deadlines, now + lease_ms, job.id)
    remove_from(job.set, job.id)
    if row.expires then remove_from('expiring', job.id) end
    count_waiting(row.tenant, -1)
    rows[i] = {job.id, run.a + 1, run.e, run.c, now, now + lease_ms, row.task, job.text}
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
