--- @include "slots"
-- Concurrency keys: which keys a job has, what their limits are, and who holds their slots. A key set `ks` is the list
-- of a job's keys with the limits that its task gave; rows and run hashes name it.
--   keysets    HASH  ks → `digest limit pattern`, one line a key, by digest
--   keynames   HASH  digest → text, for people
--   keyusers   HASH  s:<ks> → jobs that have not ended; k:<digest> → key sets. The last user takes the entries along
--   limits           kp:<pattern> → `max|text`, as configured: it goes before the task's own; '' = none, 0 = closed.
--                    With a dispatch rate (rates.lua) `max,rate,period,burst|text`
--   slots:k:<digest> ZSET  leases by start; of every job with keys, whatever the limits are now
--   conf keyed       something of the above is there; without it no script looks for any of it
local keysets, key_uses = {}, {}
local key_charges = {} -- digest → tenant → what this call's leases cost its turn at the key (waiters.lua)

local function parse_keys(packed)
  local found = {}
  for line in string.gmatch(packed, '[^\n]+') do
    local digest, limit, pattern = string.match(line, '^(%S+) (%d+) (%S+)')
    if digest then push(found, {digest = digest, limit = tonumber(limit), pattern = pattern}) end
  end
  return found
end

-- Reads the key sets of many at once.
local function load_keysets(names)
  local unknown = {}
  for _, ks in ipairs(names) do
    if not keysets[ks] then
      push(unknown, ks)
      keysets[ks] = {}
    end
  end
  if #unknown == 0 then return end
  for i, packed in ipairs(redis.call('HMGET', P .. 'keysets', unpack(unknown))) do
    keysets[unknown[i]] = parse_keys(packed or '')
  end
end

local function keyset(ks)
  if not keysets[ks] then load_keysets({ks}) end
  return keysets[ks]
end

-- The limit in force, math.huge = none; and the dispatch rate of its pattern, if there is one.
local function limit_of_key(key)
  local field = 'kp:' .. key.pattern
  local found = limits[field]
  if found == nil then
    local packed = redis.call('HGET', P .. 'limits', field)
    local max, rate = string.match(packed or '', '^(%d*),?([%d,]*)|')
    found = packed and {max = tonumber(max) or math.huge, rule = rate ~= '' and rates.rule(rate) or nil} or {}
    limits[field] = found
  end
  return found.max or key.limit, found.rule
end

-- How many more jobs the key lets start now, by its slots and by its rate; and if it is the rate that lets no further
-- one start, after `woken`, when it does.
local function room_of_key(key, woken)
  local limit, rule = limit_of_key(key)
  local room, after = limit - slots_used('k:' .. key.digest), woken or 0
  if not rule or room <= after then return room end
  local scope = 'dk:' .. key.digest .. '|' .. key.pattern
  local tokens = rates.free(scope, rule)
  return math.min(room, tokens), tokens <= after and rates.moment(scope, rule, after + 1) or nil
end

-- The first key of the set, but `but`, that lets no job start: it has no slot left, or no token, which it has again at
-- the moment that is answered, too.
local function full_key(ks, but)
  for _, key in ipairs(keyset(ks)) do
    if key.digest ~= but then
      local room, moment = room_of_key(key)
      if room < 1 then return key.digest, moment end
    end
  end
  return nil
end

-- A lease of tenant t, charged `ch`, takes a slot and a token of every key: the caller knows that none is full.
local function take_key_slots(ks, id, t, ch)
  local x, weight = string.match(ch, '^([^|]+)|([^|]+)|')
  local cost = pool.tiered and tonumber(x) / tonumber(weight) or 1
  for _, key in ipairs(keyset(ks)) do
    local scope = 'k:' .. key.digest
    slots.used[scope] = slots_used(scope) + 1
    append(slots.add, scope, now, id)
    local _, rule = limit_of_key(key)
    if rule then rates.take('d' .. scope .. '|' .. key.pattern, rule) end
    if not pool.ordered then
      local charged = key_charges[key.digest] or {}
      charged[t], key_charges[key.digest] = (charged[t] or 0) + cost, charged
    end
  end
end

-- Counts a job that comes (n = 1) or goes (-1); written by `write_key_uses`.
local function use_keys(ks, n)
  key_uses[ks] = (key_uses[ks] or 0) + n
end

local new_keys, write_key_uses
do -- a script has 200 local names at most
local brought = {sets = {}, texts = {}} -- key set → true, digest → text: what this call may have brought

-- Reads the keys of a new job; answers its key set, of which the job is a user now.
function new_keys(packed)
  local ks, lines = string.match(packed, '^([^\n]+)\n(.*)$')
  if not brought.sets[ks] then
    brought.sets[ks], keysets[ks] = true, parse_keys(lines)
    for digest, text in string.gmatch(lines, '(%S+) %d+ %S+ ([^\n]+)') do brought.texts[digest] = text end
  end
  use_keys(ks, 1)
  return ks
end

function write_key_uses()
  local gone = {}
  for ks, n in pairs(key_uses) do
    local users = n ~= 0 and redis.call('HINCRBY', P .. 'keyusers', 's:' .. ks, n)
    if n > 0 and users == n then
      local lines = {}
      for i, key in ipairs(keysets[ks]) do
        lines[i] = string.format('%s %.0f %s', key.digest, key.limit, key.pattern)
        if redis.call('HINCRBY', P .. 'keyusers', 'k:' .. key.digest, 1) == 1 then
          redis.call('HSET', P .. 'keynames', key.digest, brought.texts[key.digest])
        end
      end
      redis.call('HSET', P .. 'keysets', ks, table.concat(lines, '\n'))
    elseif users and users <= 0 then
      for _, key in ipairs(keyset(ks)) do
        if redis.call('HINCRBY', P .. 'keyusers', 'k:' .. key.digest, -1) <= 0 then
          redis.call('HDEL', P .. 'keyusers', 'k:' .. key.digest)
          redis.call('HDEL', P .. 'keynames', key.digest)
        end
      end
      redis.call('HDEL', P .. 'keyusers', 's:' .. ks)
      push(gone, ks)
    end
  end
  if next(key_uses) and not pool.keyed then
    redis.call('HSET', P .. 'conf', 'keyed', 1)
    pool.keyed = true
  end
  if #gone > 0 then
    variadic('HDEL', P .. 'keysets', gone)
    if redis.call('EXISTS', P .. 'keysets') == 0 then
      redis.call('HDEL', P .. 'conf', 'keyed')
      pool.keyed = false
    end
  end
  key_uses, brought = {}, {sets = {}, texts = {}}
end
end
