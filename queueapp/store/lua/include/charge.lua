--- @include "estimates"
--- @include "service"
-- What a job is charged: its declared cost, or the estimate. Estimates, costs set by the handler, and what never ran
-- are settled.
local function cost_of(row)
  return math.max(1, row.cost or estimate(row.task, row.tenant))
end

-- Dispatch of a job of rank r. Charges the turns of tenant and lane; answers the packed charge and the new tag of the
-- tenant. Policies that charge nothing have their own to do: under wfq V becomes r, under ring both go to the end.
-- The root stays as it is where the job is leased for its tenant's minimum: flag f.
local function charge(t, l, row, r, for_minimum)
  local T, root = node(t), node('')
  if pool.wfq and not for_minimum then root.V = math.max(time_of(root), r) end
  if pool.ring then
    turn(T, l)
    if not for_minimum then turn(root, t) end
  end
  floor.served(for_minimum)
  local x, flags = cost_of(row), (not row.cost and pool.unit == 'ms' and '1' or '') .. (for_minimum and 'f' or '')
  if not pool.tiered then return string.format('%.17g|0|0|%s', x, flags), 0 end
  local scope = scope_of(t, l)
  local wt, wl = scope.tenant.weight, scope.lane.weight
  add(T, l, x / wl)
  lift(T)
  if not for_minimum then
    add(root, t, x / wt)
    lift(root)
  end
  return string.format('%.17g|%.17g|%.17g|%s', x, wt, wl, flags), score(root, t)
end

-- Which tenants have waiting jobs, as this call found it.
local load_waiting, has_waiting
do -- a script has 200 local names at most
local waits = {}

function load_waiting(names)
  local found = redis.call('ZMSCORE', P .. 'tenants', unpack(names))
  for i, t in ipairs(names) do waits[t] = (tonumber(found[i] or nil) or 0) > 0 end
end

function has_waiting(t)
  if waits[t] == nil then load_waiting({t}) end
  return waits[t]
end
end

-- The true cost of a run corrects what was charged; `set` = the handler set it. Answers the new charge and the tenant's
-- tag after it, for a job that runs on; nil when nothing is settled.
local function settle(run, actual, set)
  local x, wt, wl, estimated, minimum = string.match(run.ch or '', '^([^|]+)|([^|]+)|([^|]+)|(1?)(f?)$')
  if not x or (estimated ~= '1' and not set) then return nil end
  local d, packed = actual - tonumber(x), string.format('%.17g|%s|%s|%s', actual, wt, wl, estimated .. minimum)
  if d == 0 then return nil end
  count_correction(run.t, tonumber(x), actual, minimum == 'f')
  if run.gn ~= pool.gen then return packed, 0 end -- it was charged by turns that are no more
  if pool.mirrored and minimum == '' then -- a leader's copy of the walk charged it, if it was leased under this policy
    local r = run.r or redis.call('HGET', P .. 'run:' .. run.id, 'r')
    if not r or string.match(r, '^([^|]+)|') ~= pool.kept then return packed, 0 end
    redis.call('ZINCRBY', P .. 'corrections', string.format('%.17g', d), run.t .. '|' .. run.l)
  end
  if not pool.tiered or wt == '0' then return packed, 0 end -- counted, and no turn was charged
  local root, T = node(''), node(run.t)
  if not root.order then load_order(root, 17) end
  local F = run.fs
  if minimum == '' then
    F = add(root, run.t, d / tonumber(wt), run.fs)
    lift(root, F)
  end
  if score(T, run.l) or tag(root, run.t) or has_waiting(run.t) then
    if not T.order then load_order(T, 2) end
    lift(T, add(T, run.l, d / tonumber(wl), time_of(T)))
  end
  return packed, F or score(root, run.t)
end
