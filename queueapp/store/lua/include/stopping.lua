-- A running job is told to stop. It stays with its worker, because ceilings, keys and singletons must hold while a body
-- runs: whatever ends its lease ends the job, as cancelled (finish.lua). Until then its run hash has `cx`, the moment
-- of the request, and the hash of its worker names it in field `stop`, which every call of that worker reads (`caller`)
-- and answers with. A worker that waits for work is woken by a token in its own set `stop:<worker>`.
local stop_running
do -- a script has 200 local names at most
local TOKEN_MS = 60000

-- `runs`: hashes of active jobs. Those that were told before are left alone.
function stop_running(runs)
  local told = {}
  for _, run in ipairs(runs) do
    if redis.call('HSETNX', P .. 'run:' .. run.id, 'cx', now) == 1 then
      append(told, run.w, run.id)
    end
  end
  for worker, ids in pairs(told) do
    local key, token = P .. 'worker:' .. worker, P .. 'stop:' .. worker
    -- One that is not known any more hears of it when it extends the lease, if it ever does.
    if redis.call('EXISTS', key) == 1 then
      local named = redis.call('HGET', key, 'stop')
      redis.call('HSET', key, 'stop', (named and named .. ' ' or '') .. table.concat(ids, ' '))
      redis.call('ZADD', token, 0, 'c')
      redis.call('PEXPIRE', token, TOKEN_MS)
    end
  end
end
end
