-- Heartbeats in bulk. A lease that outlives its charge is charged as it runs, where the charge was an estimate. Jobs
-- that were told to stop are named (stopping.lua), because their worker may have missed it; their leases last on.
local extensions = {add = {}, stopping = {}}

local function extend(id, attempts, lease_ms, worker)
  local run = owned_run(id, attempts, worker)
  if not run then return false end
  push(extensions.add, now + lease_ms, id)
  if run.cx then push(extensions.stopping, id) end
  local elapsed = now - run.st
  local charged = tonumber(string.match(run.ch or '', '^[^|]+'))
  if charged and elapsed > charged then
    local ch, fs = settle(run, elapsed, false)
    if ch then redis.call('HSET', P .. 'run:' .. id, 'ch', ch, 'fs', fs) end
  end
  return true
end

local function write_extensions()
  variadic('ZADD', P .. 'active', extensions.add)
  extensions.add = {}
end

-- A prefetched job has begun: its loss would count as a crash.
local function mark_begun(id, attempts, worker)
  if owned_run(id, attempts, worker) then redis.call('HSET', P .. 'run:' .. id, 'b', '1') end
end
