--- @include "generations"
-- What stands in the generation before (generations.lua): pending jobs, each within reach of what moves them over.
local in_old = {}
do
local named, reached = {}, {}

local function within_reach(t, l)
  local name = t .. '|' .. l
  local walks = reached['lanes:' .. t .. ' ' .. l] and reached['walk ' .. t]
  return walks or (pool.old.phase ~= 's' and (redis.call('HEXISTS', P .. 'limits', 't:' .. t) == 1
    or redis.call('HEXISTS', P .. 'limits', 'l:' .. name) == 1))
end

if pool.old then
  generation.turn_over()
  for name in pairs(older) do
    local kind = string.match(name, '^%a+')
    if kind == 'walk' or kind == 'lanes' then
      local children = redis.call('ZRANGE', W .. name, 0, -1)
      for _, member in ipairs(children) do reached[name .. ' ' .. id_of(member)] = true end
    elseif kind == 'q' or kind == 'qc' then
      named[name] = redis.call('ZRANGE', W .. name, 0, -1)
    end
  end
  for name, listed in pairs(named) do
    local tier, t, l, ks = string.match(name, '^(qc?):([^|]+)|([^|]+)|?@?(.*)$')
    for _, member in ipairs(listed) do
      local id = id_of(member)
      if string.byte(id) ~= 64 then
        stands(id, 'p')
        in_old[id] = true
        queued[id], placed[id], tiers[id] = t .. '|' .. l .. (ks ~= '' and '|@' .. ks or ''), tie_of(member), tier
        local stays = ks ~= '' and redis.call('ZSCORE', W .. 'sublanes', name) or ks == '' and within_reach(t, l)
        if not generation.holds_jobs() then report('%s stands in an old order that was left', id) end
        if not stays then report('%s stands in the old order out of reach', id) end
      end
    end
  end
  generation.turn_over()
end
end
