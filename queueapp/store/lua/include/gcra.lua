-- GCRA: the moment from which one more job of a scope conforms to its rate. `rate` jobs in `period` ms, `burst` of them
-- at once after a rest. TAT is the moment by which all jobs of the scope so far would have come, one an interval. With
-- one more it moves on by period / rate, and that job conforms if (TAT − now) · rate <= burst · period then.
-- Nothing is rounded: `gcra:<scope>` = `ms rest rate period seen`, TAT being ms + rest / rate. All figures stay below
-- 2^53, as burst · period does (validators.py). The key expires a minute after TAT: who has rested owes nothing.
-- tests/model/front.py is the same in Python's fractions.
local gcra = {}
do -- a script has 200 local names at most
local STEP_MS = 5000  -- larger steps back of the clock are accepted (clock.lua)
local KEPT_MS = 60000 -- beyond TAT: the clock by which keys expire may run ahead of `now`
local states = {}

-- TAT as it counts now under `rule`.
local function read(stored, rule)
  local ms, rest, rate, period, seen = string.match(stored or '', '^(%-?%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not ms then return now, 0 end
  ms, rest, rate, period, seen = tonumber(ms), tonumber(rest), tonumber(rate), tonumber(period), tonumber(seen)
  if seen - now > STEP_MS then ms = ms - (seen - now) end -- what was owed is owed, by the clock as it is
  if ms >= now and (rate ~= rule.rate or period ~= rule.period) then -- as many jobs are owed under another rate
    local owed = (ms - now + rest / rate) * (rule.period / period) * (rate / rule.rate)
    ms, rest = now + math.ceil(owed), 0
  end
  if ms < now then return now, 0 end
  return ms, rest
end

-- Reads the scopes that were not read yet; `rules`: scope → {rate, period, burst}.
function gcra.load(rules)
  local scopes, keys = {}, {}
  for scope in pairs(rules) do
    if not states[scope] then
      push(scopes, scope)
      push(keys, P .. 'gcra:' .. scope)
    end
  end
  if #keys == 0 then return end
  for i, stored in ipairs(redis.call('MGET', unpack(keys))) do
    local rule = rules[scopes[i]]
    local ms, rest = read(stored, rule)
    states[scopes[i]] = {rule = rule, ms = ms, rest = rest}
  end
end

-- When one more job of the scope conforms, which may have passed, and TAT with it.
local function with_one_more(s)
  local rule, sum = s.rule, s.rest + s.rule.period
  local ms, rest = s.ms + math.floor(sum / rule.rate), sum % rule.rate
  return ms + math.ceil((rest - rule.burst * rule.period) / rule.rate), ms, rest
end

function gcra.moment(scope)
  local moment = with_one_more(states[scope])
  return moment
end

-- One more job of the scope has come.
function gcra.take(scope)
  local s = states[scope]
  local _, ms, rest = with_one_more(s)
  s.ms, s.rest, s.changed = ms, rest, true
end

function gcra.write()
  for scope, s in pairs(states) do
    if s.changed then
      redis.call('SET', P .. 'gcra:' .. scope,
        string.format('%.0f %.0f %.0f %.0f %.0f', s.ms, s.rest, s.rule.rate, s.rule.period, now),
        'PX', string.format('%.0f', s.ms - now + KEPT_MS))
      s.changed = false
    end
  end
end
end
