#!lua
-- enqueue: new → pending, scheduled, backlog, ingress; pending, scheduled, backlog, ingress, ready → ended (replaced)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id task tenant lane priority tier cost due_ms delay_ms expires_after_ms max_attempts max_crashes idempotency idempotency_ttl_ms deadline_ms keys front fingerprint payload)
-- Refusals: schema
-- Events: stats enqueued; wake w, t; wake:leader i; stop:<worker> c
-- Answers per job: outcome (enqueued, parked, exists, debounced, skipped, conflict, throttled, backlog_full), the id
-- that stands for it, and for parked, throttled and backlog_full the ms until it is due or may be tried again. The id
-- is looked up first, so that a repeat pays nothing and answers as before. keys: '' or the key set, then for each
-- concurrency key a line `digest limit pattern text`. front: front.lua.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "ingress"
--- @include "due"
--- @include "front"
tick()
next_argument = 4
local jobs, keys, asks = {}, {}, pool.front or pool.room
for i = 1, tonumber(ARGV[3]) do
  local id, task, tenant, lane, priority, tier, cost, due_ms, delay_ms, expires_after_ms, max_attempts, max_crashes,
    idempotency, idempotency_ttl_ms, deadline_ms, ks, front, fingerprint, payload
    = unpack(ARGV, next_argument, next_argument + 18)
  next_argument = next_argument + 19
  jobs[i] = {
    id = id, task = task, tenant = tenant, lane = lane, priority = priority, tier = tier, cost = cost, due_ms = due_ms,
    delay_ms = delay_ms, expires_after_ms = expires_after_ms, max_attempts = max_attempts, max_crashes = max_crashes,
    idempotency = idempotency, idempotency_ttl_ms = idempotency_ttl_ms, deadline_ms = deadline_ms, keys = ks,
    front = front, fingerprint = fingerprint, payload = payload,
  }
  push(keys, P .. 'job:' .. id, P .. 'run:' .. id)
  asks = asks or front ~= ''
end
if #jobs == 0 then return {1} end

-- Limits of the lanes to which these jobs come at once, in one command.
local function load_limits_of(list)
  local fields, seen = {}, {}
  for _, j in ipairs(list) do
    local t, l = 't:' .. j.tenant, 'l:' .. j.tenant .. '|' .. j.lane
    if not j.due and not seen[l] then push(fields, l, not seen[t] and t or nil) end
    if not j.due then seen[t], seen[l] = true, true end
  end
  if #fields > 0 then load_limits(fields) end
end

-- Read: which ids and idempotency keys are known already, and what the front door says of the others.
local any_known = redis.call('EXISTS', unpack(keys)) > 0
local by_id, by_key, keyed, fresh, names, numbers = {}, {}, {}, {}, {}, {}
local front = asks and open_front()
if front then front.load(jobs) end
for _, j in ipairs(jobs) do
  local row = any_known and read_row(j.id) or by_id[j.id]
  if row or (any_known and redis.call('EXISTS', P .. 'run:' .. j.id) == 1) then
    j.outcome = (not row or row.fingerprint == j.fingerprint) and 'enqueued' or 'conflict'
    if row and j.outcome == 'enqueued' and (row.state == 'b' or row.parked) then
      j.outcome, j.wait = 'parked', math.max(0, (row.due or row.submitted + (row.delay or 0)) - now)
    end
  elseif j.idempotency ~= '' then
    local key = P .. 'idem:' .. j.tenant .. '|' .. j.idempotency
    local stored = by_key[key] or redis.call('GET', key)
    if stored then
      local owner, fingerprint = string.match(stored, '^(%S+) (.*)$')
      j.outcome = owner == j.id and 'enqueued' or (fingerprint == j.fingerprint and 'exists' or 'conflict')
      j.stands_for = owner
      if j.outcome == 'exists' and front and front.took(j) then j.outcome = 'debounced' end
    else
      by_key[key] = j.id .. ' ' .. j.fingerprint
      j.idempotency_key = key
    end
  end
  if not j.outcome then
    local due = tonumber(j.delay_ms) > 0 and now + tonumber(j.delay_ms) or tonumber(j.due_ms)
    j.due = due > now and due or nil
    if front then front.judge(j) end
  end
  if j.idempotency_key then
    local accepted, debounced = not j.outcome, j.outcome == 'debounced'
    if debounced then by_key[j.idempotency_key] = j.stands_for .. ' ' .. j.fingerprint end
    if accepted or debounced then push(keyed, j) else by_key[j.idempotency_key] = nil end -- refused: for nothing
  end
  if not j.outcome then
    by_id[j.id] = j
    push(fresh, j)
    if not numbers[j.task] then
      numbers[j.task] = true
      push(names, j.task)
    end
  end
end

-- Write: names, rows, then the places of the jobs.
if #fresh > 0 then
  stamp_schema()
  local rows, seq = {}, take_seq(#fresh)
  if pool.blocks or not pool.scheduled then load_limits_of(fresh) end
  for i, number in ipairs(redis.call('HMGET', P .. 'tasks', unpack(names))) do
    if not number then
      number = redis.call('HLEN', P .. 'tasks') + 1
      redis.call('HSET', P .. 'tasks', names[i], number)
      redis.call('HSET', P .. 'names', number, names[i])
    end
    numbers[names[i]] = number
  end
  for i, j in ipairs(fresh) do
    local expires_after = tonumber(j.expires_after_ms)
    j.expires = expires_after > 0 and now + expires_after or nil
    j.seq = j.due and 0 or seq + i - 1
    j.keys = j.keys ~= '' and new_keys(j.keys) or nil
    j.stood = pool.blocks and not j.due and waited.stood(j) or nil
    local state = j.parked and 'b' or j.due and 's' or pool.scheduled and 'i' or 'p'
    push(rows, P .. 'job:' .. j.id, build_row(state, j.seq, j, now, numbers[j.task]))
    j.task, j.priority = numbers[j.task], tonumber(j.priority) -- from here on as in a row that was read
    j.cost = j.cost ~= '0' and tonumber(j.cost) or nil
    if not j.cost then push(reach, j.tenant) end
    j.deadline = j.deadline_ms ~= '0' and tonumber(j.deadline_ms) or nil
  end
  redis.call('MSET', unpack(rows))
  for _, j in ipairs(fresh) do
    if j.tier == 'continue' and not pool.tiers then
      redis.call('HSET', P .. 'conf', 'tiers', 1)
      pool.tiers = true
    end
    to_expiring(j, j.id)
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
  count('enqueued', #fresh)
end
for _, j in ipairs(keyed) do
  redis.call('SET', j.idempotency_key, by_key[j.idempotency_key], 'PX', math.max(1, tonumber(j.idempotency_ttl_ms)))
end
local renewed = front and front.write(fresh)
if #fresh > 0 or renewed then close() end

local reply = {1}
for i, j in ipairs(jobs) do
  reply[i + 1] = {j.outcome or 'enqueued', j.stands_for or j.id, j.wait or (j.parked and j.due - now) or nil}
end
return reply
