-- Rates and room, as the front door asks them: may one more job come now?
-- Field `ft:<tenant>`, `fl:<tenant>|<lane>`, `fk:<pattern>` of `limits`: `rate|period|burst|room`.
local bounds = {}
do -- a script has 200 local names at most
local DRAIN_MOST_MS, DRAIN_LEAST_MS = 300000, 1000
local gcra = rates.gcra()
local rules, room = {}, {}     -- scope → rate; tenant → most waiting jobs
local waiting_, paces = {}, {} -- '' (the pool) and tenants → waiting jobs with those of this call; jobs started

local function parse_rule(scope, tenant, packed)
  local rate, period, burst, most = string.match(packed or '', '^(%d*)|(%d*)|(%d*)|(%d*)$')
  if rate and rate ~= '' then
    rules[scope] = {rate = tonumber(rate), period = tonumber(period), burst = tonumber(burst)}
  end
  if most and most ~= '' then room[tenant] = tonumber(most) end
end

-- Scopes of a job that may have a rate: {scope, field of `limits`}.
local function scopes_of(j)
  local found = {
    {'t:' .. j.tenant, 'ft:' .. j.tenant},
    {'l:' .. j.tenant .. '|' .. j.lane, 'fl:' .. j.tenant .. '|' .. j.lane},
  }
  for digest, pattern in string.gmatch(j.keys, '\n(%S+) %d+ (%S+)') do
    push(found, {'k:' .. digest, 'fk:' .. pattern})
  end
  return found
end

local function load_rules(jobs)
  local fields, scopes, seen = {}, {}, {}
  for _, j in ipairs(jobs) do
    j.scopes = scopes_of(j)
    for _, s in ipairs(j.scopes) do
      if not seen[s[1]] then
        seen[s[1]] = true
        push(fields, s[2])
        push(scopes, {s[1], j.tenant})
      end
    end
  end
  for first = 1, #fields, 4000 do
    local last = math.min(first + 3999, #fields)
    for i, packed in ipairs(redis.call('HMGET', P .. 'limits', unpack(fields, first, last))) do
      local s = scopes[first + i - 1]
      parse_rule(s[1], s[2], packed)
    end
  end
  gcra.load(rules)
end

local function load_waiting_(jobs)
  local names, seen = {}, {}
  for _, j in ipairs(jobs) do
    if room[j.tenant] and not seen[j.tenant] then
      seen[j.tenant] = true
      push(names, j.tenant)
    end
  end
  if #names > 0 then
    for i, n in ipairs(redis.call('ZMSCORE', P .. 'tenants', unpack(names))) do
      waiting_[names[i]] = tonumber(n or nil) or 0
    end
  end
  if pool.room then waiting_[''] = tonumber(redis.call('HGET', P .. 'counts', 'w') or 0) end
end

function bounds.load(jobs)
  if pool.front then load_rules(jobs) end
  load_waiting_(jobs)
end

-- How long a tenant ('' = the pool) needs until so many of its jobs have started, by what started in this minute and
-- the last.
local function drain_ms(t, excess)
  local minute, window, started = math.floor(now / 60000), now % 60000, paces[t]
  if not started then
    started = 0
    for back = 0, 1 do
      local packed = redis.call('HGET', string.format('%sserved:%.0f', P, minute - back), t == '' and '|' or t)
      started = started + math.max(0, tonumber(string.match(packed or '', '^[^|]*|(%-?%d+)') or 0))
    end
    paces[t] = started
  end
  if started == 0 then return DRAIN_MOST_MS end
  local wait = math.ceil(excess * (window + 60000) / started)
  return math.max(DRAIN_LEAST_MS, math.min(DRAIN_MOST_MS, wait))
end

-- True when there is no room. `leaving` = jobs of the tenant that end for this one.
local function full(j, leaving)
  local wait = nil
  for t, most in pairs({[''] = pool.room, [j.tenant] = room[j.tenant]}) do
    local excess = waiting_[t] - leaving + 1 - most
    if excess > 0 then wait = math.max(wait or 0, drain_ms(t, excess)) end
  end
  if not wait then return false end
  j.outcome, j.wait = 'backlog_full', wait
  return true
end

local function throttled(j)
  local moment = now
  for _, s in ipairs(j.scopes or {}) do
    if rules[s[1]] then moment = math.max(moment, gcra.moment(s[1])) end
  end
  if moment <= now then return false end
  if not j.parks then
    j.outcome, j.wait = 'throttled', moment - now
    return true
  end
  j.parked, j.due = true, math.max(moment, j.due or 0)
  return false
end

-- admitted: the tree that it belongs to has been accepted before (tree.lua), or it says so itself (front.lua).
function bounds.refuse(j, leaving) return throttled(j) or (not j.admitted and full(j, leaving)) end

-- The job is accepted.
function bounds.take(j, leaving)
  for _, s in ipairs(j.scopes or {}) do
    if rules[s[1]] then gcra.take(s[1]) end
  end
  for t, n in pairs(waiting_) do
    if t == '' or t == j.tenant then waiting_[t] = n + 1 - leaving end
  end
end

function bounds.write() gcra.write() end
end
