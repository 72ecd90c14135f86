-- What `verify` recounts of the front door: the backlog and its turns, who holds singletons and windows, rates.
local parks_want = {bl = {}, blc = {}}
for id, job in pairs(info) do
  if job.state == 'b' and job.row then
    local kind, due = 'bl' .. job.row.tier, redis.call('ZSCORE', P .. 'backlog', id)
    parks_want[kind][job.t] = (parks_want[kind][job.t] or 0) + 1
    if redis.call('ZSCORE', P .. kind .. ':' .. job.t, id) ~= due then
      report('%s:%s has %s at another time than backlog', kind, job.t, id)
    end
  end
end
for kind, want in pairs(parks_want) do
  for t in pairs(found[kind]) do want[t] = want[t] or 0 end
  for t, n in pairs(want) do
    local size = redis.call('ZCARD', P .. kind .. ':' .. t)
    if size ~= n then report('%s:%s holds %d, of %d that are parked', kind, t, size, n) end
    local first = redis.call('ZRANGE', P .. kind .. ':' .. t, 0, 0, 'WITHSCORES')
    if redis.call('ZSCORE', P .. kind .. 'turns', t) ~= (first[2] or false) then
      report('%sturns has %s at another time than its first', kind, t)
    end
  end
  for _, t in ipairs(members(kind .. 'turns')) do
    if not want[t] then report('%sturns holds %s, which has none', kind, t) end
  end
end
if pool.parks ~= (redis.call('EXISTS', P .. 'backlog') == 1) then report('conf parks is wrong') end

-- What is held is held by a job that has not ended, and known as such.
local held_by, once_ = {}, redis.call('HGETALL', P .. 'once')
for i = 1, #once_, 2 do
  local state = info[once_[i]] and info[once_[i]].state
  if not state or state == 'e' or state == 'd' then report('once keeps %s, which has ended', once_[i]) end
  for key in string.gmatch(once_[i + 1], '[^\n]+') do held_by[key .. ' ' .. once_[i]] = true end
end
for name in pairs(found.single) do
  local n = 0
  for id in string.gmatch(redis.call('GET', P .. 'single:' .. name), '%S+') do
    n = n + 1
    if not held_by['single:' .. name .. ' ' .. id] then report('single:%s names %s wrongly', name, id) end
    held_by['single:' .. name .. ' ' .. id] = nil
  end
  if n > 2 then report('single:%s names %d jobs', name, n) end
end
for name in pairs(found.deb) do
  local id, key_ = redis.call('HGET', P .. 'deb:' .. name, 'job'), 'deb:' .. name
  local expires = redis.call('PTTL', P .. key_) ~= -1
  local held = held_by[key_ .. ' ' .. id]
  if not expires and not held then report('%s never expires', key_) end
  if expires and held then report('%s expires before its job has ended', key_) end
end
for name in pairs(held_by) do
  if string.sub(name, 1, 7) == 'single:' then report('%s is not so', name) end
end
local asked = 0
for _, field in ipairs(redis.call('HKEYS', P .. 'limits')) do
  if string.match(field, '^f[tlk]:') then asked = asked + 1 end
end
if (tonumber(redis.call('HGET', P .. 'conf', 'front') or nil) or 0) ~= asked then
  report('conf front is not %d', asked)
end
if pool.once ~= (#once_ > 0) then report('conf once is wrong') end
for name, key_ in pairs(found.gcra) do
  if redis.call('PTTL', key_) == -1 then report('gcra:%s never expires', name) end
end
