#!lua flags=allow-oom
-- trim: ended and dead jobs beyond their retention → gone
--
-- KEYS: prefix
-- ARGV: schema clock_ms result_ttl_ms result_max dead_ttl_ms dead_max replay_window_ms worker_ttl_ms tenants limit
-- Groups:
-- Refusals: schema
-- Events: stats trimmed, dead_dropped
-- Bounded by `limit` per index, by age and by number; an ended row stays at least the replay window. dead_max bounds
-- the dead letters of each tenant: the tenants of a random sample are looked at, so that the largest are met soonest.
-- Also forgets workers that fell silent, estimates out of use, and tenants without work or dead letters where
-- more than `tenants` are known, and cuts whose time is over. Answers how many rows went, and whether another call
-- would find more.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "group"
--- @include "keysets"
--- @include "estimates"
tick()
local result_ttl, result_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local dead_ttl, dead_max, window = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local SEEN_TENANTS, QUARANTINED = tonumber(ARGV[9]), 10000
local limit, gone, more = tonumber(ARGV[10]), 0, 0

local KINDS = {'job:', 'run:', 'result:', 'errors:', 'data:', 'checkpoint:', 'children:', 'open:'}
local function remove_rows(ids)
  local keys = {}
  for _, id in ipairs(ids) do
    for _, kind in ipairs(KINDS) do push(keys, P .. kind .. id) end
  end
  unlink(keys)
  if #ids > 0 then redis.call('HINCRBY', P .. 'stats', 'trimmed', #ids) end
  gone = gone + #ids
  if #ids == limit then more = 1 end
end

-- Members to drop from a set scored by time: those older than ttl, or, beyond `max`, the oldest.
local function over(set, ttl, max, keep_ms)
  local ids = redis.call('ZRANGEBYSCORE', set, '-inf', now - math.max(ttl, keep_ms), 'LIMIT', 0, limit)
  local excess = redis.call('ZCARD', set) - max
  if excess > #ids then
    ids = redis.call('ZRANGE', set, 0, math.min(excess, limit) - 1, 'WITHSCORES')
    local old = {}
    for i = 1, #ids, 2 do
      if tonumber(ids[i + 1]) <= now - keep_ms then push(old, ids[i]) end
    end
    ids = old
  end
  return ids
end

local ended = over(P .. 'ended', result_ttl, result_max, window)
variadic('ZREM', P .. 'ended', ended)
remove_rows(ended)

local function drop_dead(ids)
  local groups = {}
  for _, id in ipairs(ids) do
    local row, v = read_row(id), redis.pcall('HMGET', P .. 'run:' .. id, 'g', 'k')
    local group, ks = v[1], row and row.keys or v[2]
    if row then redis.call('ZREM', P .. 'dead:' .. row.tenant, id) end
    if ks then use_keys(ks, -1) end
    if group then
      redis.call('ZREM', P .. 'deadgroup:' .. group, id)
      groups[group] = true
    end
  end
  write_groups(groups)
  variadic('ZREM', P .. 'dead', ids)
  variadic('HDEL', P .. 'parents', ids)
  remove_rows(ids)
end
drop_dead(over(P .. 'dead', dead_ttl, math.huge, window))
local looked_at = {}
for _, id in ipairs(redis.call('ZRANDMEMBER', P .. 'dead', 16)) do
  local row = read_row(id)
  local t = row and row.tenant
  if t and not looked_at[t] then
    looked_at[t] = true
    local dropped = over(P .. 'dead:' .. t, dead_ttl, dead_max, window)
    drop_dead(dropped)
    if #dropped > 0 then redis.call('HINCRBY', P .. 'stats', 'dead_dropped', #dropped) end
  end
end

-- Tenants without work, beyond as many as are remembered: a window of them, another one at each moment.
local idle = redis.call('ZCOUNT', P .. 'tenants', '-inf', 0)
local spare, forgotten = redis.call('ZCARD', P .. 'tenants') - SEEN_TENANTS, {}
if idle > 0 and spare > 0 then
  local first = now % math.max(1, idle - limit + 1)
  for _, t in ipairs(redis.call('ZRANGE', P .. 'tenants', first, first + math.min(limit, spare, idle) - 1)) do
    if redis.call('EXISTS', P .. 'dead:' .. t) == 0 then push(forgotten, t) end
  end
  variadic('ZREM', P .. 'tenants', forgotten)
  if #forgotten == limit then more = 1 end
end

-- Rows that nobody could read are evidence of a fault; of many, some are enough.
local broken = redis.call('SCARD', P .. 'quarantine') - QUARANTINED
if broken > 0 then remove_rows(redis.call('SPOP', P .. 'quarantine', math.min(broken, limit))) end

if pool.cuts then
  local stored, over_ = redis.call('HGETALL', P .. 'cuts'), {}
  for i = 1, #stored, 2 do
    if now >= (tonumber(string.match(stored[i + 1], ' (%d+)$')) or 0) then push(over_, stored[i]) end
  end
  variadic('HDEL', P .. 'cuts', over_)
  if #over_ * 2 == #stored then redis.call('HDEL', P .. 'conf', 'cuts') end
end

-- What held work back, of tenants that have none (blocks.lua): a sample.
if pool.blocks then
  local page, names, idle_ = redis.call('HRANDFIELD', P .. 'blocks', 16, 'WITHVALUES'), {}, {}
  for i = 1, #page, 2 do push(names, string.match(page[i], '^[^:]+:([^|]+)')) end
  for i, n in ipairs(#names > 0 and redis.call('ZMSCORE', P .. 'tenants', unpack(names)) or {}) do
    local holds = string.match(page[2 * i], '^%d+|%d') and string.match(page[2 * i - 1], '^[tl]:')
    if not holds and (tonumber(n or nil) or 0) <= 0 then push(idle_, page[2 * i - 1]) end
  end
  variadic('HDEL', P .. 'blocks', idle_)
  if redis.call('EXISTS', P .. 'blocks') == 0 then redis.call('HDEL', P .. 'conf', 'blocks') end
end

local silent = redis.call('ZRANGEBYSCORE', P .. 'workers', '-inf', now - tonumber(ARGV[8]), 'LIMIT', 0, limit)
local lost = {}
for _, worker in ipairs(silent) do
  if redis.call('EXISTS', P .. 'held:' .. worker) == 0 then
    push(lost, worker)
    redis.call('DEL', P .. 'worker:' .. worker)
  end
end
variadic('ZREM', P .. 'workers', lost)
variadic('ZREM', P .. 'watched', lost)

local page, tasks, common, useless = redis.call('HRANDFIELD', P .. 'est', 16, 'WITHVALUES'), {}, {}, {}
for i = 1, #page, 2 do push(tasks, string.match(page[i], '^%d+') or page[i]) end
if #tasks > 0 then common = redis.call('HMGET', P .. 'est', unpack(tasks)) end
for i = 1, #page, 2 do
  if is_useless(page[i + 1], common[(i + 1) / 2]) then push(useless, page[i]) end
end
variadic('HDEL', P .. 'est', useless)
if next(key_uses) then write_key_uses() end
return {1, gone, more}
