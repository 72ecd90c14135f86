#!lua flags=allow-oom
-- lead: the lease of leadership: acquire, renew, release
--
-- KEYS: prefix
-- ARGV: schema clock_ms verb owner nonce ttl_ms fault channel watch
-- Groups:
-- Refusals: schema held absent fenced
-- Events: wake:standby r
-- A grant makes a new term (epoch, nonce) and writes it as the fence: from here on the old term is dead. Epochs order
-- the log; the nonce makes a term unique even when a failover loses the counter. Answers epoch, ttl, and whether
-- anybody is seen on `channel`; for a lease that is held, the ms until it ends and whether its holder's absence would
-- show; for one whose holder has no subscription any more, the ms after which to look again. A renewal keeps `fault`
-- with the lease: why this leader cannot dispatch, for people. `channel`: where the caller is subscribed
-- (presence.lua); `watch` = 0: the caller takes over when the lease ends and never before.
--- @include "shard"
--- @include "clock"
--- @include "presence"
tick()
local MAX_TTL = 600000
local AGAIN_MS = 30
local GONE_MS = 25
local verb, owner, nonce, ttl, channel = ARGV[3], ARGV[4], ARGV[5], math.min(tonumber(ARGV[6]), MAX_TTL), ARGV[8]
local leader = redis.call('HMGET', P .. 'leader', 'epoch', 'nonce', 'until', 'armed', 'channel', 'absent')
local fence = redis.call('HMGET', P .. 'fence', 'epoch', 'nonce')
local ends = tonumber(leader[3] or 0)

if verb == 'release' then
  if leader[2] ~= nonce then return {1, 0, 0, 0} end
  redis.call('DEL', P .. 'leader')
  redis.call('ZADD', P .. 'wake:standby', 0, 'r')
  return {1, 1, 0, 0}
end

if leader[2] == nonce or fence[2] == nonce or verb == 'renew' then
  -- An expired lease that nobody took may be renewed; a term that was given up has ended for good.
  if leader[2] ~= nonce or fence[2] ~= nonce then return {0, 'fenced'} end
  -- Who renews is there, whatever its socket says: without a subscription the lease alone decides from now on.
  local armed = presence.armed(channel)
  redis.call('HSET', P .. 'leader', 'until', now + ttl, 'fault', ARGV[7], 'channel', channel, 'armed', armed,
    'absent', '')
  redis.call('HSET', P .. 'fence', 'tick', now)
  return {1, tonumber(leader[1]), ttl, tonumber(armed)}
end

-- An end too far in the future means that the clock stepped back: such a lease is not live.
if leader[2] and now < ends and ends <= now + MAX_TTL then
  if ARGV[9] ~= '1' or leader[4] ~= '1' then return {0, 'held', ends - now, 0} end
  if presence.subscribers({leader[5]})[leader[5]] ~= 0 then
    if leader[6] ~= '' then redis.call('HSET', P .. 'leader', 'absent', '') end
    return {0, 'held', ends - now, 1}
  end
  -- Twice, so that a socket that flaps costs a renewal and not the lease. Safe in any case: the fence protects.
  local since = tonumber(leader[6])
  if not since then redis.call('HSET', P .. 'leader', 'absent', now) end
  if not since or now - since < GONE_MS then return {0, 'absent', AGAIN_MS} end
end
local epoch = math.max(tonumber(fence[1] or 0), tonumber(leader[1] or 0)) + 1
epoch = math.max(epoch, now)
redis.call('HSET', P .. 'fence', 'epoch', epoch, 'nonce', nonce, 'tick', now)
local armed = presence.armed(channel)
redis.call('HSET', P .. 'leader', 'owner', owner, 'epoch', epoch, 'nonce', nonce, 'until', now + ttl, 'fault', '',
  'channel', channel, 'armed', armed, 'absent', '')
redis.call('ZREM', P .. 'wake:standby', 'r')
return {1, epoch, ttl, tonumber(armed)}
