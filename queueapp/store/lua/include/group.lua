-- Dead letters by what they died of. `deadgroup:<group>` holds the members by time of death, `deadgroups` the groups
-- by the death of their newest member; both go with the last one. A group is 12 hex characters: what the worker made
-- of an error, else a digest of task number and reason.
local function group_of(given, task, reason)
  if #given == 12 and not string.find(given, '[^0-9a-f]') then return given end
  return string.sub(redis.sha1hex(task .. '|' .. reason), 1, 12)
end

-- Puts `deadgroups` right for the groups that gained or lost members.
local function write_groups(touched)
  for group in pairs(touched) do
    local newest = redis.call('ZRANGE', P .. 'deadgroup:' .. group, -1, -1, 'WITHSCORES')
    if newest[1] then
      redis.call('ZADD', P .. 'deadgroups', newest[2], group)
    else
      redis.call('ZREM', P .. 'deadgroups', group)
    end
  end
end
