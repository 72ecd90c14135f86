-- Dispatch rates: how many jobs of a tenant, of a lane and with a concurrency key may start in a time. A GCRA each
-- (gcra.lua) at the pick, so that it counts leases, and under scheduled dispatch what is dispatched. A job needs a
-- token of every scope of its own that has such a rate, or takes none. What was picked has used them up: a job that
-- comes back unrun returns nothing, because over any time t no more than burst + rate · t shall have been leased. A
-- job in ready has its tokens already. A guaranteed minimum gives none.
--   limits   the last field of `t:<tenant>` and `l:<tenant>|<lane>`, and what follows the ceiling of `kp:<pattern>`:
--            rate,period,burst. So a scope without one is known with its ceiling, and costs no command
--   gcra:d…  where one stands: dt:<tenant>, dl:<tenant>|<lane>, dk:<digest>|<pattern>
--   timers   ZSET: tenants and lanes, spelt as in `limits`, that stand out of the walk for want of a token → when they
--            have one. `refresh` puts them in, the sweep (timers.lua) refreshes those that are due. What else holds a
--            scope back goes first, and who has no job needs no token: neither stands there. One that found a token
--            before its moment came stays until then, which does no harm
--   conf rated  some scope was given one. Without it no script looks for any of it
-- A key without a token is like one that is full (keys.lua): its waiters are looked at when it has one, by `waitkeys`.
-- Limits that were read are asked for all states at once, when the first is needed.
local rates = {}
do -- a script has 200 local names at most
--- @include "gcra"
rates.gcra = open_gcra

-- From here on states are read anew.
function rates.open()
  local gcra, known, wanted, due = open_gcra(), {}, {}, {}

  local function load(scope, rule)
    if rule and not known[scope] then
      wanted[scope] = rule
      gcra.load(wanted)
      for read in pairs(wanted) do known[read] = true end
      wanted = {}
    end
  end

  -- One that may be asked for in this call.
  function rates.want(scope, rule)
    if not known[scope] then wanted[scope] = rule end
  end

  -- How many tokens a scope has, and when it has the n-th from now.
  function rates.free(scope, rule)
    load(scope, rule)
    return gcra.free(scope)
  end

  function rates.moment(scope, rule, n)
    load(scope, rule)
    return gcra.moment(scope, n)
  end

  function rates.take(scope, rule)
    load(scope, rule)
    gcra.take(scope)
  end

  -- Has tenant or lane `field`, whose limits these are, a token? One that has none stands in `timers` from now on.
  function rates.allows(field, limit)
    if rates.free('d' .. field, limit.rule) >= 1 then return true end
    due[field] = rates.moment('d' .. field, limit.rule)
    return false
  end

  -- Have tenant t and the lane, `scope` (slots.lua) being what is configured for both?
  function rates.admit(t, scope)
    return not (scope.tenant.rule and not rates.allows('t:' .. t, scope.tenant))
      and not (scope.lane.rule and not rates.allows('l:' .. scope.name, scope.lane))
  end

  -- Writes the states; answers what is to stand in `timers`, and its first moment.
  function rates.write()
    gcra.write()
    local members, first = {}, nil
    for field, moment in pairs(due) do
      push(members, moment, field)
      first = math.min(first or moment, moment)
    end
    due = {}
    return members, first
  end
end

-- What `rate,period,burst` says, or nil. `scope`: whose it is.
function rates.rule(text, scope)
  local rate, period, burst = string.match(text or '', '^(%d+),(%d+),(%d+)$')
  if not rate then return nil end
  if not rates.write then rates.open() end
  local rule = {rate = tonumber(rate), period = tonumber(period), burst = tonumber(burst)}
  if scope then rates.want(scope, rule) end
  return rule
end
end

