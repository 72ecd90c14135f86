-- What each tenant had of the pool, minute by minute: what the fairness certificate is made of, under every policy.
-- HASH served:<minute>: tenant → units|jobs|largest|corrections, and `|` for the pool → units|jobs|most in flight.
-- A lease counts as a job with its charge; a correction of the charge counts in the minute in which it comes, so that
-- a minute can have negative units. Counted only where a lease is given and where one is settled: a repeated call
-- comes to neither. Kept in memory until `close`, which writes it with three commands.
local SERVED_MS = 7200000
local service = {}

local function had(t)
  service[t] = service[t] or {units = 0, jobs = 0, largest = 0, corrections = 0}
  return service[t]
end

-- `ch` is the packed charge of a job that was leased.
local function count_lease(t, ch)
  local s, x = had(t), tonumber(string.match(ch or '', '^[^|]+') or 0)
  s.units, s.jobs, s.largest = s.units + x, s.jobs + 1, math.max(s.largest, x)
end

-- A job that was charged x has cost `actual` so far; 0: it was given back and never ran.
local function count_correction(t, x, actual)
  local s = had(t)
  s.units, s.largest, s.corrections = s.units + actual - x, math.max(s.largest, x, actual), s.corrections + 1
  if actual == 0 then s.jobs = s.jobs - 1 end
end

local function write_service()
  local names, fields, units, jobs = {}, {}, 0, 0
  for t in pairs(service) do push(names, t) end
  if #names == 0 then return end
  push(names, '|')
  local key = P .. 'served:' .. string.format('%.0f', math.floor(now / 60000))
  local stored = redis.call('HMGET', key, unpack(names))
  for i = 1, #names - 1 do
    local s, u, j, largest, corrections = service[names[i]], string.match(stored[i] or '', '^(.*)|(.*)|(.*)|(.*)$')
    units, jobs = units + s.units, jobs + s.jobs
    push(fields, names[i], string.format('%.17g|%.0f|%.17g|%.0f', tonumber(u or 0) + s.units, tonumber(j or 0) + s.jobs,
      math.max(tonumber(largest or 0), s.largest), tonumber(corrections or 0) + s.corrections))
  end
  local u, j, most = string.match(stored[#names] or '', '^(.*)|(.*)|(.*)$')
  -- Only the bound of tiered asks for it; the call that begins a minute sets its end instead.
  most = math.max(tonumber(most or 0), u and pool.tiered and redis.call('ZCARD', P .. 'active') or 0)
  push(fields, '|', string.format('%.17g|%.0f|%.0f', tonumber(u or 0) + units, tonumber(j or 0) + jobs, most))
  redis.call('HSET', key, unpack(fields))
  if not u then redis.call('PEXPIRE', key, SERVED_MS) end
end
