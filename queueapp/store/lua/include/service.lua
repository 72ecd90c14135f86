-- What each tenant had of the pool, minute by minute: what the fairness certificate is made of, under every policy.
-- HASH served:<minute>: tenant → units|jobs|largest|corrections, and `|` for the pool → units|jobs|most in flight.
-- A lease counts as a job with its charge; a correction of the charge counts in the minute in which it comes, so that
-- a minute can have negative units. Counted only where a lease is given and where one is settled: a repeated call
-- comes to neither. Kept in memory until `close`, which writes it with three commands.
-- Where there is any of it, three more follow: |jobs|largest|entered. Jobs that were leased for a guaranteed minimum:
-- they are in units and jobs, too, but `largest` and `corrections` above are of turns alone, because a minimum moves
-- none. And the ms of the minute at which the tenant entered the walk again after something had held it back.
-- Last, after a `;`, what its jobs leased in that minute had waited, in ms: schedule|backoff|limits|line (waited.lua).
local freed = {} -- tenants that a pause, a ceiling or a key may hold back no longer, as of this call
local count_lease, count_correction, count_entry, count_waits, write_service
do -- a script has 200 local names at most
local SERVED_MS = 7200000
local service = {}

local function had(t)
  service[t] = service[t]
    or {units = 0, jobs = 0, largest = 0, corrections = 0, minimum_jobs = 0, minimum_largest = 0, entered = '',
      schedule = 0, backoff = 0, limits = 0, line = 0}
  return service[t]
end

-- Of turns, or of what a minimum gave.
local function note_largest(s, x, for_minimum)
  local field = for_minimum and 'minimum_largest' or 'largest'
  s[field] = math.max(s[field], x)
end

-- `ch` is the packed charge of a job that was leased (charge.lua).
function count_lease(t, ch)
  local s, x, for_minimum = had(t), tonumber(string.match(ch or '', '^[^|]+') or 0), string.find(ch or '', 'f', 1, true)
  s.units, s.jobs = s.units + x, s.jobs + 1
  if for_minimum then s.minimum_jobs = s.minimum_jobs + 1 end
  note_largest(s, x, for_minimum)
end

-- A job that was charged x has cost `actual` so far; 0: it was given back and never ran.
function count_correction(t, x, actual, for_minimum)
  local s = had(t)
  s.units = s.units + actual - x
  note_largest(s, math.max(x, actual), for_minimum)
  if not for_minimum then s.corrections = s.corrections + 1 end
  if actual == 0 then s.jobs = s.jobs - 1 end
  if actual == 0 and for_minimum then s.minimum_jobs = s.minimum_jobs - 1 end
end

-- A job was leased that had waited so long, ms (waited.lua).
function count_waits(t, schedule, backoff, limits_, line)
  local s = had(t)
  s.schedule, s.backoff = s.schedule + schedule, s.backoff + backoff
  s.limits, s.line = s.limits + limits_, s.line + line
end

-- The tenant has entered the walk: told only of one that was freed, the others came with their first job.
function count_entry(t)
  if freed[t] then had(t).entered = string.format('%.0f', now % 60000) end
end

local function add_waits(stored, s)
  local schedule, backoff, limits_, line = string.match(stored, '^(%d+)|(%d+)|(%d+)|(%d+)$')
  schedule, backoff = (schedule or 0) + s.schedule, (backoff or 0) + s.backoff
  limits_, line = (limits_ or 0) + s.limits, (line or 0) + s.line
  if schedule + backoff + limits_ + line == 0 then return '' end
  return string.format(';%.0f|%.0f|%.0f|%.0f', schedule, backoff, limits_, line)
end

local function add_to(stored, s)
  local had_, waits = string.match(stored or '', '^([^;]*);?(.*)$')
  local u, j, largest, corrections, rest = string.match(had_, '^([^|]+)|([^|]+)|([^|]+)|(%d+)|?(.*)$')
  local minimum_jobs, minimum_largest, entered = string.match(rest or '', '^(%-?%d+)|([^|]+)|(%d*)$')
  minimum_jobs = tonumber(minimum_jobs or 0) + s.minimum_jobs
  minimum_largest = math.max(tonumber(minimum_largest or 0), s.minimum_largest)
  entered = s.entered ~= '' and s.entered or entered or ''
  local packed = string.format('%.17g|%.0f|%.17g|%.0f', tonumber(u or 0) + s.units, tonumber(j or 0) + s.jobs,
    math.max(tonumber(largest or 0), s.largest), tonumber(corrections or 0) + s.corrections)
  if minimum_jobs == 0 and minimum_largest == 0 and entered == '' then return packed .. add_waits(waits, s) end
  return string.format('%s|%.0f|%.17g|%s', packed, minimum_jobs, minimum_largest, entered) .. add_waits(waits, s)
end

function write_service()
  if not next(service) then return end
  local names, fields, units, jobs = {}, {}, 0, 0
  for t in pairs(service) do push(names, t) end
  push(names, '|')
  local key = P .. 'served:' .. string.format('%.0f', math.floor(now / 60000))
  local stored = redis.call('HMGET', key, unpack(names))
  for i = 1, #names - 1 do
    local s = service[names[i]]
    units, jobs = units + s.units, jobs + s.jobs
    push(fields, names[i], add_to(stored[i], s))
  end
  local u, j, most = string.match(stored[#names] or '', '^(.*)|(.*)|(.*)$')
  -- Only the bound of tiered asks for it; the call that begins a minute sets its end instead.
  most = math.max(tonumber(most or 0), u and pool.tiered and redis.call('ZCARD', P .. 'active') or 0)
  push(fields, '|', string.format('%.17g|%.0f|%.0f', tonumber(u or 0) + units, tonumber(j or 0) + jobs, most))
  redis.call('HSET', key, unpack(fields))
  if not u then redis.call('PEXPIRE', key, SERVED_MS) end
end
end
