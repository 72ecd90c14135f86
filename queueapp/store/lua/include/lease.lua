--- @include "ready"
--- @include "commit"
-- Leasing: the token (worker, seq), the commit of what was found, and the rows of a reply. What stands in ready goes
-- first; under scheduled dispatch nothing else is leased.
-- A row of the reply: id, attempts, errors, crashes, lease start, deadline, task number, text of the row, ready since
-- ('' = as the row says), what it waited for before this lease (`schedule|backoff|limits` ms, '' = the line alone).
-- seq = stored: no new lease, the same jobs again. seq < stored: a call that came too late.

local caller, lease, leased_before, commit_leases
do -- a script has 200 local names at most
-- Rows that the call with this seq (of `match`: the job's id) leased before.
function leased_before(worker, seq)
  local rows = {}
  for _, id in ipairs(redis.call('SMEMBERS', P .. 'held:' .. worker)) do
    local run = read_run(id)
    local text = run and redis.call('GET', P .. 'job:' .. id)
    local told = redis.call('HMGET', P .. 'run:' .. id, 'ls', 'tw')
    if text and run.s == 'a' and told[1] == seq then
      local deadline = tonumber(redis.call('ZSCORE', P .. 'active', id))
      read_history(run)
      push(rows, {id, run.a, run.e, run.c, run.st, deadline, run.n, text, run.rd or '',
        run.a == 1 and waited.told(parse_row(text).delay or 0, 0, run.wl) or told[2] or ''})
    end
  end
  return rows
end

-- Read phase of a lease: up to `want` jobs of ready, in the order of their dispatch, into `found` (pick.lua).
-- A suspect is leased alone, as by `pick`.
local function take_ready(found, want, alone)
  local at, looks = 0, 2 * want + 80
  while #found.jobs < want and found.bytes < MAX_REPLY_BYTES and looks > 0 and not found.whole do
    local ids = redis.call('ZRANGE', P .. 'ready', at, at + math.min(want - #found.jobs, 50) - 1)
    if #ids == 0 then return end
    local names = {}
    for i, id in ipairs(ids) do names[i] = P .. 'job:' .. id end
    local texts = redis.call('MGET', unpack(names))
    for i, id in ipairs(ids) do
      if found.whole or found.bytes >= MAX_REPLY_BYTES then return end
      at, looks = at + 1, looks - 1
      local text, run = texts[i], read_run(id)
      local row = text and parse_row(text)
      local suspect = false
      if row and run then
        read_history(run)
        suspect = run.c >= SUSPECT
      end
      if not row or not run or run.s ~= 'r' then
        push(found.broken, {id = id, ready = true, row = row, run = run})
      elseif row.expires and row.expires <= now then
        push(found.expired, {id = id, row = row, run = run})
      elseif pool.cuts and is_cut(row) then
        push(found.expired, {id = id, row = row, run = run, outcome = 'cancelled'})
      elseif pauses(run.t, run.l) then
        push(found.back, {id = id, row = row, run = run})
      elseif suspect and not (alone and #found.jobs == 0) then
        if run.sp and must_drain(now - run.sp) then
          found.whole = true
          return
        end
        if not run.sp then push(found.passed, id) end
      else
        push(found.jobs, {id = id, row = row, run = run, text = text, ready = true})
        found.bytes = found.bytes + #text
        found.whole = suspect
      end
    end
  end
end

function commit_leases(found, worker, seq, lease_ms, begin)
  local rows, members, deadlines = {}, {}, {}
  for i, job in ipairs(found.jobs) do
    local row, run, key = job.row, job.run, P .. 'run:' .. job.id
    local attempts, errors, crashes = 1, 0, 0
    if run then
      attempts, errors, crashes = run.a + 1, run.e, run.c
      if not run.s1 and run.st then redis.call('HSET', key, 's1', run.st) end
      if run.sp then redis.call('HDEL', key, 'sp') end
    end
    local begun = (i <= begin or crashes >= SUSPECT) and '1' or '0'
    local fields = {'s', 'a', 'a', attempts, 'w', worker, 'ls', seq, 'st', now, 'b', begun}
    local schedule, backoff, limits_, line = waited.leased(job, fields)
    if write_picked(found, job, fields) then
      count_waits(row.tenant, schedule, backoff, limits_, line)
      if job.ready then remove_from('ready', job.id) else leave_picked(job) end
      push(members, job.id)
      push(deadlines, now + lease_ms, job.id)
      if row.expires then remove_from('expiring', job.id) end
      count_waiting(row.tenant, -1)
      push(rows, {job.id, attempts, errors, crashes, now, now + lease_ms, row.task, job.text, run and run.rd or '',
        waited.told(schedule, backoff, limits_)})
    end
  end
  variadic('ZADD', P .. 'active', deadlines)
  variadic('SADD', P .. 'held:' .. worker, members)
  commit_rest(found)
  if #members > 0 then count('leased', #members) end
  return rows
end

-- What is known of the caller: {seq, alone} of its last call, and `stop`: which of its jobs were told to stop
-- (stopping.lua). nil for a call that came too late.
function caller(worker, seq)
  local known = redis.call('HMGET', P .. 'worker:' .. worker, 'seq', 'alone', 'stop', 'absent')
  local last = tonumber(known[1] or -1)
  if tonumber(seq) < last then return nil end
  if known[4] and known[4] ~= '' then redis.call('HSET', P .. 'worker:' .. worker, 'absent', '') end -- it is there
  return {seq = last, alone = known[2], stop = known[3] or ''}
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
  local found, most = new_found(), math.min(want, 100)
  if pool.scheduled or pool.leftover then take_ready(found, most, held_ == 0) end
  if not pool.scheduled and want > 0 and not found.whole then pick(most, held_ == 0, found) end
  local rows = commit_leases(found, worker, seq, lease_ms, begin)
  local first = found.jobs[1]
  redis.call('HSET', key, 'seq', seq)
  if first then redis.call('HSET', key, 'alone', first.run and first.run.c >= SUSPECT and first.id or '') end
  redis.call('PEXPIRE', key, math.max(60000, lease_ms * 20))
  redis.call('ZADD', P .. 'workers', now, worker)
  return rows, found.more
end
end
