-- What a job costs: declared, or else learnt from the run times of its task here (EWMA with factor 1/8, in sixteenths
-- of a millisecond so that it stays an exact number). Only estimates, and costs set by the handler, are settled.
local estimates = {}

local function estimate(task)
  if pool.unit ~= 'ms' then return 1 end
  local known = estimates[task]
  if known == nil then
    local stored = redis.call('HGET', P .. 'est', task)
    known = stored and tonumber(string.match(stored, '^%d+')) or false
    estimates[task] = known
  end
  return known and known / 16 or pool.cost
end

local function learn(task, run_ms)
  if pool.unit ~= 'ms' then return end
  estimate(task)
  local known, seen = estimates[task], run_ms * 16
  estimates[task] = known and known + math.floor((seen - known) / 8 + 0.5) or seen
  estimates.learnt = estimates.learnt or {}
  estimates.learnt[task] = true
end

local function write_estimates()
  local fields, day = {}, math.floor(now / 86400000)
  for task in pairs(estimates.learnt or {}) do
    fields[#fields + 1], fields[#fields + 2] = task, string.format('%.0f|%.0f', estimates[task], day)
  end
  variadic('HSET', P .. 'est', fields)
end

-- Charges the tenant's turn and the lane's turn at dispatch. Answers the packed charge and the tenant's new tag.
local function charge(t, l, row)
  if pool.ordered then return nil end
  local scope = scope_of(t, l)
  local wt, wl = scope.tenant.weight, scope.lane.weight
  local x = math.max(1, row.cost or estimate(row.task))
  local T, root = node(t), node('')
  add(T, l, x / wl)
  lift(T)
  add(root, t, x / wt)
  lift(root)
  local estimated = not row.cost and pool.unit == 'ms'
  return string.format('%.17g|%.17g|%.17g|%s', x, wt, wl, estimated and '1' or ''), score(root, t)
end

-- Which tenants have waiting jobs, as this call found it.
local waits = {}

local function load_waiting(names)
  local found = redis.call('ZMSCORE', P .. 'tenants', unpack(names))
  for i, t in ipairs(names) do waits[t] = (tonumber(found[i] or nil) or 0) > 0 end
end

local function has_waiting(t)
  if waits[t] == nil then load_waiting({t}) end
  return waits[t]
end

-- The true cost of a run corrects what was charged; `set` = the handler set it. Answers the new charge and the tenant's
-- tag after it, for a job that runs on; nil when nothing is settled.
local function settle(run, actual, set)
  local x, wt, wl, estimated = string.match(run.ch or '', '^([^|]+)|([^|]+)|([^|]+)|(1?)$')
  if pool.ordered or not x or (estimated ~= '1' and not set) then return nil end
  local d, root, T = actual - tonumber(x), node(''), node(run.t)
  if d == 0 then return nil end
  if not root.order then load_order(root, 17) end
  local F = add(root, run.t, d / tonumber(wt), run.fs)
  lift(root, F)
  if score(T, run.l) or tag(root, run.t) or has_waiting(run.t) then
    if not T.order then load_order(T, 2) end
    lift(T, add(T, run.l, d / tonumber(wl), T.V))
  end
  return string.format('%.17g|%s|%s|%s', actual, wt, wl, estimated), F or score(root, run.t)
end
