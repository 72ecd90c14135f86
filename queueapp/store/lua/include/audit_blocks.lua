-- What `verify` recounts of the time that own limits take (blocks.lua): a scope with work counts just while one of them
-- holds it back, a sub-lane just while it waits for a key.
do
local counts, stored_ = {}, redis.call('HGETALL', P .. 'blocks')
for i = 1, #stored_, 2 do
  local sum, since, above = string.match(stored_[i + 1], '^(%d+)|(%d*)|(%d+)$')
  if not sum then report('blocks holds nonsense of %s', stored_[i]) end
  counts[stored_[i]] = since ~= '' and since ~= nil
end
if #stored_ > 0 and not pool.blocks then report('conf blocks is wrong') end

-- true, false, or nil where a token decides.
local function held_back(scope)
  local limit = limit_of(scope)
  if limit.paused or (limit.max and slots_used(scope) >= limit.max) then return true end
  if limit.rule then return nil end
  return false
end
for scope, counts_ in pairs(counts) do
  if string.find(scope, '^[tl]:') then
    if counts_ and held_back(scope) == false then report('blocks counts for %s, which may run', scope) end
  elseif counts_ and subs[scope] and not parked[scope] and not pool.old then
    report('blocks counts for %s, which waits for no key', scope)
  end
end
for set in pairs(parked) do
  if not counts[set] then report('blocks does not count for %s, which waits for a key', set) end
end
for t, lanes_ in pairs(lanes_want) do
  local runs = false
  for l in pairs(lanes_) do
    local held = held_back('l:' .. t .. '|' .. l)
    if held and not counts['l:' .. t .. '|' .. l] then report('blocks does not count for %s|%s, held back', t, l) end
    runs = runs or held == false
  end
  if runs and held_back('t:' .. t) and not counts['t:' .. t] then report('blocks does not count for %s', t) end
end
end
