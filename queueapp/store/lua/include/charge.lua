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
  return string.format('%.17g|%.17g|%.17g|%s', x, wt, wl, row.cost and '' or '1'), score(root, t)
end

-- The true cost of a run corrects what was charged; `set` = the handler set it. Nodes are lifted by `lift_settled`.
local function settle(run, actual, set)
    local x, wt, wl, estimated = string.match(run.ch or '', '^([^|]+)|([^|]+)|([^|]+)|(1?)$')
  if pool.ordered or not x or (estimated ~= '1' and not set) then return end
  local d, root, T = actual - tonumber(x), node(''), node(run.t)
  if d == 0 then return end
  local F = add(root, run.t, d / tonumber(wt), run.fs)
  root.settled = true
  if F then root.finish = math.max(root.finish or F, F) end
  if score(T, run.l) or tag(root, run.t) or redis.call('HEXISTS', P .. 'counts', 'w:' .. run.t) == 1 then
    F = add(T, run.l, d / tonumber(wl), T.V)
    T.settled = true
    if F then T.finish = math.max(T.finish or F, F) end
  end
  return string.format('%.17g|%s|%s|%s', actual, wt, wl, estimated)
end

local function lift_settled()
  for _, N in pairs(nodes) do
    if N.settled then
      lift(N, N.finish)
      N.settled, N.finish = nil, nil
    end
  end
end
