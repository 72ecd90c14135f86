-- GCRA: the moment from which one more job of a scope conforms to its rate. `rate` jobs in `period` ms, `burst` of them
-- at once after a rest. TAT is the moment by which all jobs of the scope so far would have come, one an interval. With
-- one more it moves on by period / rate, and that job conforms if (TAT − now) · rate <= burst · period then.
-- Nothing is rounded: `gcra:<scope>` = `ms rest rate period seen`, TAT being ms + rest / rate. All figures stay below
-- 2^53, as burst · period does (validators.py). The key expires a minute after TAT: who has rested owes nothing.
-- tests/model/front.py is the same in Python's fractions. Of rates.lua; made anew for each use, so that a script that
-- meets no rate makes none of it.
local function open_gcra()
local gcra, states = {}, {}
local STEP_MS = 5000  -- larger steps back of the clock are accepted (clock.lua)
local KEPT_MS = 60000 -- beyond TAT: the clock by which keys expire may run ahead of `now`

-- TAT as it counts now under `rule`. True = it was converted, which is to be kept: later it would come to another.
local function read(stored, rule)
  local ms, rest, rate, period, seen = string.match(stored or '', '^(%-?%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not ms then return now, 0 end
  ms, rest, rate, period, seen = tonumber(ms), tonumber(rest), tonumber(rate), tonumber(period), tonumber(seen)
  local set_back = seen - now > STEP_MS
  if set_back then ms = ms - (seen - now) end -- what was owed is owed, by the clock as it is
  if ms >= now and (rate ~= rule.rate or period ~= rule.period) then -- as many jobs are owed under another rate
    local owed = (ms - now + rest / rate) * (rule.period / period) * (rate / rule.rate)
    return now + math.ceil(owed), 0, true
  end
  if ms < now then return now, 0 end
  return ms, rest, set_back
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
    local ms, rest, converted = read(stored, rule)
    states[scopes[i]] = {rule = rule, ms = ms, rest = rest, changed = converted}
  end
end

-- When the n-th job from now conforms, which may have passed, and TAT with all of them.
local function with_more(s, n)
  local rule, sum = s.rule, s.rest + n * s.rule.period
  local ms, rest = s.ms + math.floor(sum / rule.rate), sum % rule.rate
  return ms + math.ceil((rest - rule.burst * rule.period) / rule.rate), ms, rest
end

-- When one more job of the scope conforms; n = 2: the one after it, and so on.
function gcra.moment(scope, n)
  local moment = with_more(states[scope], n or 1)
  return moment
end

-- How many jobs of the scope conform now.
function gcra.free(scope)
  local s = states[scope]
  local rule = s.rule
  return math.max(0, math.floor((rule.burst * rule.period - (s.ms - now) * rule.rate - s.rest) / rule.period))
end

-- One more job of the scope has come.
function gcra.take(scope)
  local s = states[scope]
  local _, ms, rest = with_more(s, 1)
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

return gcra
end
