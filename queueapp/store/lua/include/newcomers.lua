-- What is written of jobs that were accepted: names of tasks, rows, then places, all of one call together.
-- A job as the groups of `enqueue` and `enqueue_flow` name its parts; besides: due, its moment if that lies ahead;
-- parked, it waits in the backlog for it; waits, for its children (kin.lua).
--- @include "tiers"
local write_newcomers
do -- a script has 200 local names at most
-- Limits of the lanes to which these jobs come at once, in one command.
local function load_limits_of(list)
  local fields, seen = {}, {}
  for _, j in ipairs(list) do
    local t, l = 't:' .. j.tenant, 'l:' .. j.tenant .. '|' .. j.lane
    local comes = not j.due and not j.waits
    if comes and not seen[l] then push(fields, l, not seen[t] and t or nil) end
    if comes then seen[t], seen[l] = true, true end
  end
  if #fields > 0 then load_limits(fields) end
end

-- Numbers of the tasks, by name; new ones for those that had none.
local function numbers_of(list)
  local names, numbers = {}, {}
  for _, j in ipairs(list) do
    if not numbers[j.task] then
      numbers[j.task] = true
      push(names, j.task)
    end
  end
  for i, number in ipairs(redis.call('HMGET', P .. 'tasks', unpack(names))) do
    if not number then
      number = redis.call('HLEN', P .. 'tasks') + 1
      redis.call('HSET', P .. 'tasks', names[i], number)
      redis.call('HSET', P .. 'names', number, names[i])
    end
    numbers[names[i]] = number
  end
  return numbers
end

-- A body of it may have begun unheard, under the fence of the first attempt, as in `match`: that one is forgiven, and
-- no lease has it.
local function use_up_attempt(j, state, number)
  redis.call('HSET', P .. 'run:' .. j.id, 's', state, 'a', 1, 'en', 1, 'f', 1, 't', j.tenant, 'n', number, 'sm', now,
    unpack(j.lane ~= 'main' and {'l', j.lane} or {}))
  if j.stood then redis.call('HSET', P .. 'run:' .. j.id, 'ue', j.stood) end
end

local function to_children(j)
  redis.call('HSET', P .. 'run:' .. j.id, 's', 'w', 'kd', 1, 't', j.tenant, 'n', j.task, 'sm', now,
    unpack(j.lane ~= 'main' and {'l', j.lane} or {}))
  append(moves.add, 'waiting', now, j.id)
end

-- To where it waits, or into line.
local function to_place(j)
  if j.waits then return to_children(j) end
  if j.parked then
    j.outcome = 'parked'
    backlog.enter(j.id, j.tenant, j.tier == 'continue' and 'c' or '', j.due)
    count('parked')
  elseif j.due then
    to_scheduled(j.id, j.due)
  elseif pool.scheduled then
    to_ingress(j.id, j, j.seq, now)
  else
    to_pending(j.id, j.tenant, j.lane, j.tier == 'continue' and 'c' or '', rank(j, j.seq, now), hex(j.seq), j.keys)
  end
  count_waiting(j.tenant, 1)
end

function write_newcomers(fresh)
  stamp_schema()
  local rows, seq, numbers = {}, take_seq(#fresh), nil
  if pool.blocks or not pool.scheduled then load_limits_of(fresh) end
  numbers = numbers_of(fresh)
  for i, j in ipairs(fresh) do
    local expires_after = tonumber(j.expires_after_ms)
    j.expires = expires_after > 0 and now + expires_after or nil
    j.seq = (j.due or j.waits) and 0 or seq + i - 1
    j.keys = j.keys ~= '' and new_keys(j.keys) or nil
    j.stood = pool.blocks and not j.due and not j.waits and waited.stood(j) or nil
    local state = j.waits and 'h' or j.parked and 'b' or j.due and 's' or pool.scheduled and 'i' or 'p'
    local text = build_row(j.front == 'u' and 'h' or state, j.seq, j, now, numbers[j.task])
    push(rows, P .. 'job:' .. j.id, text)
    if j.front == 'u' then use_up_attempt(j, state, numbers[j.task]) end
    j.task, j.priority = numbers[j.task], tonumber(j.priority) -- from here on as in a row that was read
    j.cost = j.cost ~= '0' and tonumber(j.cost) or nil
    if not j.cost then push(reach, j.tenant) end
    j.deadline = j.deadline_ms ~= '0' and tonumber(j.deadline_ms) or nil
  end
  redis.call('MSET', unpack(rows))
  for _, j in ipairs(fresh) do
    if j.tier == 'continue' then begin_tiers() end
    to_expiring(j, j.id)
    to_place(j)
  end
  count('enqueued', #fresh)
end
end
