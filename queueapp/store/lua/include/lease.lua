-- Leasing: the token (worker, seq), the commit of what `pick` found, and the rows of a reply.
-- A row of the reply: id, attempts, errors, crashes, lease start, deadline, task number, text of the row, ready since
-- ('' = as the row says). seq = stored: no new lease, the same jobs again. seq < stored: a call that came too late.

local caller, lease
do -- a script has 200 local names at most
-- Rows that the call with this seq leased before.
local function leased_before(worker, seq)
  local rows = {}
  for _, id in ipairs(redis.call('SMEMBERS', P .. 'held:' .. worker)) do
    local run = read_run(id)
    local text = run and redis.call('GET', P .. 'job:' .. id)
    if text and run.s == 'a' and redis.call('HGET', P .. 'run:' .. id, 'ls') == seq then
      local deadline = tonumber(redis.call('ZSCORE', P .. 'active', id))
      read_history(run)
      push(rows, {id, run.a, run.e, run.c, run.st, deadline, run.n, text, run.rd or ''})
    end
  end
  return rows
end

local function set_aside(found)
  for _, bad in ipairs(found.broken) do
    redis.call('SADD', P .. 'quarantine', bad.id)
    redis.call('ZREM', P .. 'expiring', bad.id)
    push(moves.ended, bad.id) -- nobody shall wait for it
    count('quarantined')
    count_waiting(bad.t, -1)
    if bad.ks then use_keys(bad.ks, -1) end
    leave_queue(bad.set, bad.member, bad.ks)
    touch(bad.t, bad.l)
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
      if run.r and not pool.kept then redis.call('HDEL', key, 'r') end
    end
    local kept = pool.kept and {'r', string.format('%s|%.17g', pool.kept, job.r)} or {}
    local begun = (i <= begin or crashes >= 2) and '1' or '0'
    local written = redis.pcall(
      'HSET', key, 's', 'a', 'a', attempts, 'w', worker, 'ls', seq, 'st', now, 't', row.tenant, 'n', row.task,
      'sm', row.submitted, 'b', begun, 'ch', job.ch or '', 'fs', job.fs or 0, unpack(kept)
    )
    if type(written) == 'table' then -- the key has a wrong type
      untake_slots(job.id)
      push(found.broken, {
        id = job.id, t = row.tenant, l = row.lane, set = job.set, member = job.member, ks = row.keys,
      })
    else
      if row.lane ~= 'main' then redis.call('HSET', key, 'l', row.lane) end
      if row.delay and not run then redis.call('HSET', key, 'rd', row.submitted + row.delay) end
      push(members, job.id)
      push(deadlines, now + lease_ms, job.id)
      if row.keys then redis.call('HSET', key, 'k', row.keys) end
      leave_queue(job.set, job.member, row.keys, true)
      if row.expires then remove_from('expiring', job.id) end
      count_waiting(row.tenant, -1)
      count_lease(row.tenant, job.ch)
      push(rows, {job.id, attempts, errors, crashes, now, now + lease_ms, row.task, job.text, run and run.rd or ''})
    end
  end
  variadic('ZADD', P .. 'active', deadlines)
  variadic('SADD', P .. 'held:' .. worker, members)
  for _, gone in ipairs(found.expired) do
    leave_waiting(gone.id, gone.row, 'p')
    to_ended(gone.id, 'expired', identity(gone.row), gone.row.keys)
  end
  set_aside(found)
  for _, set in ipairs(found.aside) do sub.touch(set) end
  for _, id in ipairs(found.passed) do redis.call('HSET', P .. 'run:' .. id, 'sp', now) end
  if #members > 0 then count('leased', #members) end
  return rows
end

-- What is known of the caller: {seq, alone} of its last call; nil for a call that came too late.
function caller(worker, seq)
  local known = redis.call('HMGET', P .. 'worker:' .. worker, 'seq', 'alone')
  local last = tonumber(known[1] or -1)
  if tonumber(seq) < last then return nil end
  return {seq = last, alone = known[2]}
end

-- Leases up to `want` jobs for `worker`, which `caller` knew; answers the rows, and whether sub-lanes are left that had
-- to step aside and could not in one call.
function lease(known, worker, seq, want, begin, lease_ms)
  if tonumber(seq) == known.seq then return leased_before(worker, seq) end
  local key = P .. 'worker:' .. worker
  local held_ = redis.call('SCARD', P .. 'held:' .. worker)
  if held_ > 0 and known.alone and redis.call('SISMEMBER', P .. 'held:' .. worker, known.alone) == 1 then
    want = 0 -- a suspect runs alone
  end
  local found = {jobs = {}, expired = {}, broken = {}, passed = {}, aside = {}}
  if want > 0 then found = pick(math.min(want, 100), held_ == 0) end
  local rows = commit_leases(found, worker, seq, lease_ms, begin)
  local first = found.jobs[1]
  redis.call('HSET', key, 'seq', seq)
  if first then redis.call('HSET', key, 'alone', first.run and first.run.c >= 2 and first.id or '') end
  redis.call('PEXPIRE', key, math.max(60000, lease_ms * 20))
  redis.call('ZADD', P .. 'workers', now, worker)
  return rows, found.more
end
end
