-- What `verify` recounts of the jobs that were told to stop (stopping.lua): who still knows it, and that they ended so.
-- And of checkpoints: that they go with the end of their job.
do
local named = {}
for worker, key in pairs(found.worker) do
  for id in string.gmatch(redis.call('HGET', key, 'stop') or '', '%S+') do
    if named[id] then report('%s is named twice to be stopped', id) end
    named[id] = worker
    local run = info[id] and info[id].run
    if not (run and run.s == 'a' and run.cx and run.w == worker) then
      report('worker:%s names %s, which it shall not stop', worker, id)
    end
  end
end
for id, job in pairs(info) do
  local run = job.run
  if run and run.cx and run.s ~= 'a' and run.s ~= 'm' then
    local outcome = redis.call('HGET', P .. 'run:' .. id, 'o')
    if run.s ~= 'e' or outcome ~= 'cancelled' then report('%s was told to stop and is in state %s', id, run.s) end
  end
  if job.state == 'e' and found.checkpoint[id] then report('%s has ended but keeps its checkpoint', id) end
end
end
