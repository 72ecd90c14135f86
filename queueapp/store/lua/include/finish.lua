-- The end of an attempt, for the holder of the lease only. One word per job: done, retry, dead, stale, gone.
-- Every record of a failed or lost attempt is `kind|attempt|worker|at|` and the JSON that the worker wrote.
local held = {} -- worker → ids whose lease ended in this call

local function record_attempt(run, kind, json)
  local key = P .. 'errors:' .. run.id
  redis.call('RPUSH', key, string.format('%s|%.0f|%s|%.0f|%s', kind, run.a, run.w, now, json))
  redis.call('LTRIM', key, -20, -1)
end

-- The lease of an attempt ends: its places in active, held and the slots are given back.
local function end_lease(run)
  remove_from('active', run.id)
  append(held, run.w, run.id)
  if release_slots(run.t, run.l, run.id) then touch(run.t, run.l) end
end

local function write_held()
  for worker, ids in pairs(held) do variadic('SREM', P .. 'held:' .. worker, ids) end
  held = {}
end

local function finish_completed(id, attempts, run_ms, cost, result)
  local run, word = owned_run(id, attempts)
  if not run then return word end
  run_ms = math.min(run_ms, math.max(0, now - run.st))
  if result ~= '' then redis.call('SET', P .. 'result:' .. id, result) end
  to_ended(id, 'completed', {'en', attempts})
  end_lease(run)
  settle(run, cost > 0 and math.max(1, cost) or math.max(1, run_ms), cost > 0)
  learn(run.n, run_ms)
  return 'done'
end

-- retry_ms < 0: no other attempt is asked for. Errors are counted against max_attempts.
local function finish_failed(id, attempts, run_ms, cost, retry_ms, reason, json)
  local run, word = owned_run(id, attempts)
  if not run then return word end
  local row = read_row(id)
  read_history(run)
  run_ms = math.min(run_ms, math.max(0, now - run.st))
  record_attempt(run, 'error', json)
  local fields = {'e', run.e + 1, 'en', attempts}
  local again = retry_ms >= 0 and row and run.e + 1 < row.max_attempts
  if again and row.expires and row.expires <= now + retry_ms then again = false end
  if again then
    redis.call('HSET', P .. 'run:' .. id, 's', 's', unpack(fields))
    hash_holds_state(id)
    to_scheduled(id, now + retry_ms)
    if row.expires then append(moves.add, 'expiring', row.expires, id) end
    count_waiting(run.t, 1)
    count('retried')
    word = 'retry'
  else
    redis.call('HSET', P .. 'run:' .. id, unpack(fields))
    hash_holds_state(id)
    to_dead(id, run.t, reason)
    word = 'dead'
  end
  end_lease(run)
  settle(run, cost > 0 and math.max(1, cost) or math.max(1, run_ms), cost > 0)
  return word
end

-- Back to the place in line that the job had, or for `delay_ms` into the scheduled set. `fields` are written with it.
local function give_back(run, row, delay_ms, fields)
  hash_holds_state(run.id)
  if delay_ms > 0 then
    redis.call('HSET', P .. 'run:' .. run.id, 's', 's', 'en', run.a, unpack(fields))
    to_scheduled(run.id, now + delay_ms)
  else
    redis.call('HSET', P .. 'run:' .. run.id, 's', 'p', 'en', run.a, unpack(fields))
    to_pending(run.id, run.t, run.l, row.tier, run.r)
  end
  if row.expires then append(moves.add, 'expiring', row.expires, run.id) end
  count_waiting(run.t, 1)
  end_lease(run)
end

-- A lease that expired, or whose worker is lost. Only a job that had begun counts it as a crash; another is forgiven.
local function recover(run, row)
  read_history(run)
  record_attempt(run, 'lost', '{}')
  count('lost')
  if not run.b then
    give_back(run, row, 0, {'f', run.f + 1})
    return 'pending'
  end
  if run.c + 1 < row.max_crashes then
    give_back(run, row, 0, {'c', run.c + 1})
    return 'pending'
  end
  redis.call('HSET', P .. 'run:' .. run.id, 'c', run.c + 1, 'en', run.a)
  hash_holds_state(run.id)
  to_dead(run.id, run.t, 'worker_lost')
  end_lease(run)
  return 'dead'
end

-- A row of the group `finished`: kind (completed, failed), id, attempts, run_ms, cost, retry_ms, reason, blob.
local function finish_one(f)
  local id, attempts, run_ms, cost = f[2], tonumber(f[3]), tonumber(f[4]), tonumber(f[5])
  if f[1] == 'completed' then
    return finish_completed(id, attempts, run_ms, cost, f[8])
  end
  return finish_failed(id, attempts, run_ms, cost, tonumber(f[6]), f[7], f[8])
end
