-- What time alone sets off, in bounded shares: due jobs, expired jobs, expired leases. Done by every scheduler and by
-- the workers' `cycle`; a repeat does the next due ones.
local function due_ids(set, limit)
  return redis.call('ZRANGEBYSCORE', P .. set, '-inf', now, 'LIMIT', 0, limit)
end

-- The row of an id that stands in `set` cannot be read; t: its tenant, where the index tells it.
local function quarantine(set, id, t)
  redis.call('ZREM', P .. set, id)
  if set == 'expiring' then return set_aside(id) end -- the index where it waits has it, too
  local row, run = read_row(id), read_run(id)
  set_aside(id, set ~= 'active', t or row and row.tenant or run and run.t, run and run.k or row and row.keys)
end

-- (row, state, run hash or nil) of a job that has not ended; nil when its row cannot be read.
local function waiting_row(id)
  local row = read_row(id)
  if not row then return nil end
  local run, wrong = read_run(id)
  if wrong then return nil end
  if run then return row, run.s, run end -- the byte of a first lease is not touched: a hash prevails
  if row.state == 'h' then return nil end
  return row, row.state
end

--- @include "ready"
--- @include "admission"
--- @include "draw"
-- Waiting jobs whose expires_after passed → ended (expired).
local function expire_due(limit)
  local ids, expired = due_ids('expiring', limit), 0
  for _, id in ipairs(ids) do
    local row, state, run = waiting_row(id)
    if not row then
      quarantine('expiring', id)
    elseif WAITING[state] then
      leave_waiting(id, row, state, run)
      to_ended(id, 'expired', not run and identity(row) or nil, row.keys)
      expired = expired + 1
    elseif state == 'w' then
      family.leave(id, row)
      family.forget(id)
      to_ended(id, 'expired', nil, row.keys)
      expired = expired + 1
    else
      redis.call('ZREM', P .. 'expiring', id)
    end
  end
  return expired, #ids == limit
end

-- Scheduled jobs whose time has come → pending or ingress, with a new place in line.
local function promote(limit)
  local ids, promoted = due_ids('scheduled', limit), 0
  if #ids == 0 then return 0, false end
  local seq = take_seq(#ids)
  for i, id in ipairs(ids) do
    local row, state, run = waiting_row(id)
    if not row then
      quarantine('scheduled', id)
    elseif state ~= 's' then
      remove_from('scheduled', id) -- moved by this very call
    else
      local n = seq + i - 1
      if run then read_history(run) end
      place_anew(id, row, run, n, ready_of(row, run))
      remove_from('scheduled', id)
      promoted = promoted + 1
    end
  end
  count('promoted', promoted)
  return promoted, #ids == limit
end

-- Expired leases → pending at their old place, dead when the crash budget is spent, or ended when it was told to stop.
-- Answers counts, and whether there are more.
local function recover_due(limit)
  local ids, counts_ = due_ids('active', limit), {pending = 0, dead = 0, cancelled = 0}
  for _, id in ipairs(ids) do
    local run = read_run(id)
    local row = run and read_row(id)
    if not row then
      quarantine('active', id)
      if run then end_lease(run) end
    elseif run.s ~= 'a' then
      remove_from('active', id) -- ended by this very call
    else
      local word = recover(run, row)
      counts_[word] = counts_[word] + 1
    end
  end
  return counts_, #ids == limit
end
