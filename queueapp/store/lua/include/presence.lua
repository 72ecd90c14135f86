-- Signs of life. A process that wants its death to be noticed at once stays subscribed to a channel of its own: with
-- its socket goes the subscription, within milliseconds, where a lease takes seconds to end. A channel is told with its
-- kind before its name: `p` = SUBSCRIBE, `s` = SSUBSCRIBE; '' = none. A server that does not answer knows nothing:
-- nobody is absent then.
local presence = {}
do -- a script has 200 local names at most
local COUNTS = {p = 'NUMSUB', s = 'SHARDNUMSUB'}

-- Channel → subscribers, of those that the server counts, in one command a kind.
function presence.subscribers(channels)
  local found = {}
  for kind, verb in pairs(COUNTS) do
    local names = {}
    for _, channel in ipairs(channels) do
      if string.sub(channel, 1, 1) == kind then push(names, string.sub(channel, 2)) end
    end
    local told = #names > 0 and redis.pcall('PUBSUB', verb, unpack(names)) or {}
    for i = 1, told.err and 0 or #told, 2 do found[kind .. told[i]] = tonumber(told[i + 1]) end
  end
  return found
end

-- '1' for a channel that this script sees somebody subscribed to: only such a one may count as absent later.
function presence.armed(channel)
  return channel ~= '' and (presence.subscribers({channel})[channel] or 0) > 0 and '1' or '0'
end
end
