--- @include "stopping"
-- One job is cancelled: what waits ends, what runs is told to stop. A parent that waits for children takes them along:
-- nobody is left who would want what they do. They end in shares (`family.sweep`), the first of them at once.
do -- a script has 200 local names at most
local HOLD = '+'

-- Answers a word (cancel.lua); the hash of a job that runs is put into `running`.
function family.cancel(id, running)
  local row, state, run = waiting_row(id)
  if WAITING[state] then
    leave_waiting(id, row, state, run)
    to_ended(id, 'cancelled', not run and identity(row) or nil, row.keys)
    return 'cancelled'
  end
  if state == 'w' then
    family.leave(id, row)
    push(moves.unlink, P .. 'children:' .. id)
    to_ended(id, 'cancelled', nil, row.keys)
    family.sweep_at('c:' .. id, now)
    return 'cancelled'
  end
  run = run or read_run(id)
  if not run then return 'gone' end
  if run.s == 'a' then
    push(running, run)
    return 'stopping'
  end
  if run.s == 'm' then
    redis.call('HSETNX', P .. 'run:' .. id, 'cx', now)
    return 'moving'
  end
  return run.s == 'e' and redis.call('HGET', P .. 'run:' .. id, 'o') == 'moved' and 'moved' or 'already'
end

-- The caller that was to add more children did not come back.
local function give_up_hold(id)
  local run = read_run(id)
  local row = run and run.s == 'w' and read_row(id)
  local held = redis.call('SREM', P .. 'open:' .. id, HOLD) == 1
  if not row or not held then return end
  family.fail(run, row, HOLD)
  family.sweep_at('c:' .. id, now)
end

-- Up to `limit` children of a parent that is over; how many.
local function cancel_children(id, limit, running)
  local taken = redis.call('SPOP', P .. 'open:' .. id, limit)
  for _, child in ipairs(taken) do
    if family.is_here(child) then
      family.cancel(child, running)
    elseif child ~= HOLD then
      family.write_out('k', 'cancel', 'to', child)
    end
  end
  return #taken
end

-- Looks at what is due of `sweeps`: gives up holds, and cancels up to `limit` children. True = there may be more.
function family.sweep(limit)
  if not pool.sweeps then return false end
  local running, left = {}, limit
  while left > 0 do
    local member = redis.call('ZRANGEBYSCORE', P .. 'sweeps', '-inf', now, 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind, id = string.match(member, '^(%l):(.*)$')
    local number = 0
    if kind == 'h' then
      give_up_hold(id)
    elseif kind == 'c' then
      number = cancel_children(id, left, running)
    end
    if kind ~= 'c' or redis.call('EXISTS', P .. 'open:' .. id) == 0 then family.swept(member) end
    left = left - math.max(1, number)
  end
  stop_running(running)
  return left <= 0
end
end
