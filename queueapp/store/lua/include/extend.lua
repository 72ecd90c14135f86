-- Heartbeats in bulk. A lease that outlives its charge is charged as it runs, where the charge was an estimate.
local extensions = {}

local function extend(id, attempts, lease_ms)
  local run = owned_run(id, attempts)
  if not run then return false end
  push(extensions, now + lease_ms, id)
  local elapsed = now - run.st
  local charged = tonumber(string.match(run.ch or '', '^[^|]+'))
  if charged and elapsed > charged then
    local ch, fs = settle(run, elapsed, false)
    if ch then redis.call('HSET', P .. 'run:' .. id, 'ch', ch, 'fs', fs) end
  end
  return true
end

local function write_extensions()
  variadic('ZADD', P .. 'active', extensions)
  extensions = {}
end

-- A prefetched job has begun: its loss would count as a crash.
local function mark_begun(id, attempts)
  if owned_run(id, attempts) then redis.call('HSET', P .. 'run:' .. id, 'b', '1') end
end
