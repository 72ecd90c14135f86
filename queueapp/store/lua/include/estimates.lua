-- What an undeclared cost is, learnt from the run times here. HASH est: `<task>` → average|day, and for a tenant whose
-- runs of that task differ `<task>|<tenant>` → average|day|runs. Averages move by an eighth and are kept in sixteenths
-- of a millisecond, so that they stay exact numbers. A tenant's own average counts from its eighth run on; until then,
-- and where the hash is full, the task's stands for it. `trim` drops what is not used, and what differs no more.
local reach = {} -- the tenants that this call can come to: their estimates are read together
local load_estimates, estimate, learn, write_estimates, is_useless
do -- a script has 200 local names at most
local RUNS_KNOWN, ESTIMATES_MAX = 8, 4096
local estimates = {} -- field → {average, runs}, or false
local learnt = {}    -- field → true
local kept           -- fields of est

-- Twice as long or half as long: only then an estimate of its own is worth keeping. Nothing costs less than one.
local function differs(average, other)
  local a, b = math.max(16, average), math.max(16, other)
  return a >= 2 * b or b >= 2 * a
end

-- Reads the estimates of many (task, tenant) at once.
function load_estimates(wanted)
  local fields = {}
  for _, pair in ipairs(wanted) do
    for _, field in ipairs({pair[1], pair[1] .. '|' .. pair[2]}) do
      if estimates[field] == nil then
        estimates[field] = false
        push(fields, field)
      end
    end
  end
  for first = 1, #fields, 4000 do
    local last = math.min(first + 3999, #fields)
    local stored = redis.call('HMGET', P .. 'est', unpack(fields, first, last))
    for i = first, last do
      local average, runs = string.match(stored[i - first + 1] or '', '^(%d+)|%d+|?(%d*)$')
      estimates[fields[i]] = average and {average = tonumber(average), runs = tonumber(runs) or 0} or false
    end
  end
end

function estimate(task, t)
  if pool.unit ~= 'ms' then return 1 end
  local field = task .. '|' .. t
  if estimates[field] == nil then
    local wanted, asked = {{task, t}}, {[t] = true}
    for _, other in ipairs(reach) do
      if not asked[other] then push(wanted, {task, other}) end
      asked[other] = true
    end
    load_estimates(wanted)
  end
  local own = estimates[field]
  local known = own and own.runs >= RUNS_KNOWN and own or estimates[task]
  return known and known.average / 16 or pool.cost
end

local function move_average(field, seen, factor)
  local known = estimates[field]
  known.average = known.average + math.floor((seen - known.average) / factor + 0.5)
  learnt[field] = true
end

function learn(task, t, run_ms)
  if pool.unit ~= 'ms' then return end
  local field, seen = task .. '|' .. t, run_ms * 16
  if estimates[field] == nil then load_estimates({{task, t}}) end
  local own, common = estimates[field], estimates[task]
  if own then
    own.runs = math.min(own.runs + 1, RUNS_KNOWN)
    move_average(field, seen, own.runs)
  elseif common and differs(seen, common.average) then
    kept = kept or redis.call('HLEN', P .. 'est')
    if kept < ESTIMATES_MAX then
      kept = kept + 1
      estimates[field], learnt[field] = {average = seen, runs = 1}, true
    end
  end
  if common then
    move_average(task, seen, 8)
  else
    estimates[task], learnt[task] = {average = seen, runs = 0}, true
  end
end

function write_estimates()
  local fields, day = {}, math.floor(now / 86400000)
  for field in pairs(learnt) do
    local known = estimates[field]
    local form = known.runs > 0 and '%.0f|%.0f|%.0f' or '%.0f|%.0f'
    push(fields, field, string.format(form, known.average, day, known.runs))
  end
  variadic('HSET', P .. 'est', fields)
end

-- Shall `trim` drop a field? What was not used for 30 days; of a tenant also what never came to count, and what differs
-- no more from the task's own.
function is_useless(value, of_task)
  local average, seen, runs = string.match(value, '^(%d+)|(%d+)|?(%d*)$')
  local silent_days = math.floor(now / 86400000) - (tonumber(seen) or 0)
  if silent_days > 30 or not tonumber(runs) then return silent_days > 30 end
  if tonumber(runs) < RUNS_KNOWN then return silent_days > 1 end
  local common = tonumber(string.match(of_task or '', '^%d+'))
  return common and not differs(tonumber(average), common)
end
end
