-- Parents and children (kin.lua): who waits has somebody to wait for, and whoever is waited for knows it.
do
local swept = {}
for _, member in ipairs(members('sweeps')) do swept[member] = true end
if pool.sweeps ~= (next(swept) ~= nil) then report('conf sweeps is wrong') end
local links, live = {}, {s = true, p = true, b = true, i = true, r = true, a = true, w = true, m = true}
local stored_ = redis.call('HGETALL', P .. 'parents')
for i = 1, #stored_, 2 do
  local id, parent = stored_[i], string.match(stored_[i + 1], '^[frci]|%d+|(.+)$')
  links[id] = parent or ''
  local state = info[id] and info[id].state
  if not parent then report('parents has nonsense of %s', id) end
  if not live[state] and state ~= 'd' then report('parents keeps %s, which has ended', id) end
  local waits = parent and #parent == 22 and info[parent] and info[parent].state
  if live[state] and (waits == 'w' or waits == 'd')
    and redis.call('SISMEMBER', P .. 'open:' .. parent, id) == 0 then
    report('open:%s lacks %s', parent, id)
  end
end
for id in pairs(found.open) do
  local state = info[id] and info[id].state
  if state ~= 'w' and state ~= 'd' and not swept['c:' .. id] then
    report('open:%s is kept by a job in state %s', id, tostring(state))
  end
  for _, child in ipairs(redis.call('SMEMBERS', P .. 'open:' .. id)) do
    if child == '+' then
      if not swept['h:' .. id] then report('%s waits for more children, and nobody looks', id) end
    elseif #child == 22 and links[child] ~= id then
      report('open:%s holds %s, which is no child of it', id, child)
    end
  end
end
for id in pairs(found.children) do
  if not info[id] then report('children:%s has no job', id) end
end
for id, job in pairs(info) do
  if job.state == 'w' and not found.open[id] then report('%s waits for nobody', id) end
  if job.state == 'w' and not job.run.kd then report('%s waits for children, but kd is missing', id) end
end
for member in pairs(swept) do
  local kind, id = string.match(member, '^(%l):(.+)$')
  if kind == 'h' and info[id] and info[id].state == 'w' and redis.call('SISMEMBER', P .. 'open:' .. id, '+') == 0 then
    report('sweeps keeps %s for nothing', member)
  elseif kind == 'c' and not found.open[id] then
    report('sweeps keeps %s, whose children have ended', member)
  elseif kind ~= 'h' and kind ~= 'c' then
    report('sweeps holds %s', member)
  end
end
end
