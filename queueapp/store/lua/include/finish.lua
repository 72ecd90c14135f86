--- @include "again"
-- The end of an attempt, for the holder of the lease only. One word per job: done, retry, dead, cancelled, stale,
-- gone.
-- Every record of a failed or lost attempt is `kind|attempt|worker|start|at|` and the JSON that the worker wrote.
local end_lease, write_held, give_back, recover, finish_all, end_stopped
do -- a script has 200 local names at most
local held = {} -- worker → ids whose lease ended in this call

local function record_attempt(run, kind, json)
  local key = P .. 'errors:' .. run.id
  local text = string.format('%s|%.0f|%s|%.0f|%.0f|%s', kind, run.a, run.w, run.st or 0, now, json)
  local length = redis.pcall('RPUSH', key, text)
  if type(length) == 'number' then redis.call('LTRIM', key, -20, -1) end
end

-- Its worker need not be told any more to stop it (stopping.lua).
local function untell(run)
  local key, left = P .. 'worker:' .. run.w, {}
  for id in string.gmatch(redis.call('HGET', key, 'stop') or '', '%S+') do
    if id ~= run.id then push(left, id) end
  end
  if #left > 0 then
    redis.call('HSET', key, 'stop', table.concat(left, ' '))
  else
    redis.call('HDEL', key, 'stop')
  end
end

-- The lease of an attempt ends: its places in active, held and the slots are given back.
function end_lease(run)
  remove_from('active', run.id)
  append(held, run.w, run.id)
  if release_slots(run.t, run.l, run.id) then
    freed[run.t] = true
    push(moves.freed, {run.t, run.l})
  end
  if run.k then sub.release(run.k, run.id) end
  if run.cx then untell(run) end
end

function write_held()
  for worker, ids in pairs(held) do variadic('SREM', P .. 'held:' .. worker, ids) end
  held = {}
end

-- Settles what an attempt cost: what its handler set, else the time that it took. Answers fields of its hash: what was
-- charged in the end, where that changed.
local function settle_end(run, run_ms, cost)
  local set = cost > 0
  local charged = settle(run, math.max(1, set and cost or run_ms), set)
  return charged and {'ch', charged} or {}
end

-- The lease of a job that was told to stop is over, in whatever way: no attempt follows, nothing is a dead letter.
function end_stopped(run, fields)
  to_ended(run.id, 'cancelled', fields, run.k)
  if run.kd then family.forget(run.id) end
  end_lease(run)
  return 'cancelled'
end

-- Its body is through. What it raised is kept, what it returned is not, and a run that was cut short teaches nothing
-- about its task.
local function finish_stopped(run, kind, run_ms, cost, json)
  if kind == 'failed' then record_attempt(run, 'error', json) end
  run_ms = math.min(run_ms, math.max(0, now - run.st))
  return end_stopped(run, {'en', run.a, unpack(settle_end(run, run_ms, cost))})
end

local function finish_completed(run, run_ms, cost, result)
  local id = run.id
  run_ms = math.min(run_ms, math.max(0, now - run.st))
  if result ~= '' then redis.call('SET', P .. 'result:' .. id, result) end
  to_ended(id, 'completed', {'en', run.a, unpack(settle_end(run, run_ms, cost))}, run.k)
  family.tell(id, 'completed', result)
  if run.kd then family.forget(id) end
  end_lease(run)
  learn(run.n, run.t, run_ms)
  return 'done'
end

-- retry_ms < 0: no other attempt is asked for. Errors are counted against max_attempts.
local function finish_failed(run, run_ms, cost, retry_ms, reason, group, json)
  local id, word = run.id, 'dead'
  local row = read_row(id)
  read_history(run)
  run_ms = math.min(run_ms, math.max(0, now - run.st))
  record_attempt(run, 'error', json)
  local fields = {'e', run.e + 1, 'en', run.a, unpack(settle_end(run, run_ms, cost))}
  redis.call('HDEL', P .. 'run:' .. id, 'uk') -- somebody knows the task
  local again = retry_ms >= 0 and row and run.e + 1 < row.max_attempts
  if again and row.expires and row.expires <= now + retry_ms then again = false end
  if again then
    redis.call('HSET', P .. 'run:' .. id, 's', 's', 'rd', now + retry_ms, 'le', now, unpack(fields))
    hash_holds_state(id)
    to_scheduled(id, now + retry_ms)
    to_expiring(row, id)
    count_waiting(run.t, 1)
    count('retried')
    word = 'retry'
  else
    redis.call('HSET', P .. 'run:' .. id, unpack(fields))
    if row then hash_holds_state(id) end
    to_dead(id, run.t, run.n, reason, group)
  end
  end_lease(run)
  return word
end

-- The attempt is over, and the job waits for its children (add_children).
function family.suspend(run, row, cost)
  local run_ms = math.max(0, now - run.st)
  redis.call('HSET', P .. 'run:' .. run.id, 's', 'w', 'kd', 1, 'en', run.a, 'le', now,
    unpack(settle_end(run, run_ms, cost)))
  hash_holds_state(run.id)
  append(moves.add, 'waiting', now, run.id)
  to_expiring(row, run.id)
  end_lease(run)
end

-- Back to the place in line that the job had, or for `delay_ms` into the scheduled set. `fields` are written with it.
function give_back(run, row, delay_ms, fields)
  if delay_ms > 0 then
    hash_holds_state(run.id)
    redis.call('HSET', P .. 'run:' .. run.id, 's', 's', 'rd', now + delay_ms, 'le', now, unpack(fields))
    to_scheduled(run.id, now + delay_ms)
  else
    place_again(run.id, row, run, {'rd', now, 'le', now, 'kp', row.seq, unpack(fields)})
  end
  to_expiring(row, run.id)
  count_waiting(run.t, 1)
  end_lease(run)
end

-- A lease that expired, or whose worker is lost. Only a job that had begun counts it as a crash; another is forgiven.
-- The attempt did not end: what its worker says later is stale.
function recover(run, row)
  read_history(run)
  record_attempt(run, 'lost', '{}')
  count('lost')
  if run.cx then return end_stopped(run) end
  if not run.b then
    give_back(run, row, 0, {'f', run.f + 1})
    return 'pending'
  end
  if run.c + 1 < row.max_crashes then
    give_back(run, row, 0, {'c', run.c + 1})
    return 'pending'
  end
  redis.call('HSET', P .. 'run:' .. run.id, 'c', run.c + 1)
  hash_holds_state(run.id)
  to_dead(run.id, run.t, run.n, 'worker_lost')
  end_lease(run)
  return 'dead'
end

-- All rows of the group `finished`: kind (completed, failed), id, attempts, run_ms, cost, retry_ms, reason, group,
-- blob, told by `worker` (nil = whoever). Reads and checks everything first, then writes. Answers one word per row.
function finish_all(rows, worker)
  local runs, words, seen, reached, fields, names, taught = {}, {}, {}, {}, {}, {}, {}
  for i, f in ipairs(rows) do
    local id, attempts = f[2], tonumber(f[3])
    if seen[id] then
      words[i] = seen[id] == attempts and 'done' or 'stale'
    else
      runs[i], words[i] = owned_run(id, attempts, worker)
      local run = runs[i]
      if run then
        seen[id] = attempts
        if f[1] == 'completed' and pool.unit == 'ms' and not run.cx then push(taught, {run.n, run.t}) end
        if not reached[run.t] then
          reached[run.t] = true
          push(names, run.t)
          push(fields, 't:' .. run.t, 'l:' .. run.t .. '|' .. run.l)
        end
      end
    end
  end
  if #names > 0 then
    load_limits(fields)
    load_nodes(names)
    load_waiting(names)
    load_estimates(taught)
  end
  for i, f in ipairs(rows) do
    local run, run_ms, cost = runs[i], tonumber(f[4]), tonumber(f[5])
    if run and run.cx then
      words[i] = finish_stopped(run, f[1], run_ms, cost, f[9])
    elseif run and f[1] == 'completed' then
      words[i] = finish_completed(run, run_ms, cost, f[9])
    elseif run then
      words[i] = finish_failed(run, run_ms, cost, tonumber(f[6]), f[7], f[8], f[9])
    end
  end
  return words
end
end
