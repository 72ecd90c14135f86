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
--- @include "due"
--- @include "newcomers"
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
  asks = asks or #front > 1 -- one letter asks for nothing that is not configured
end
if #jobs == 0 then return {1} end

-- Read: which ids and idempotency keys are known already, and what the front door says of the others.
local any_known = redis.call('EXISTS', unpack(keys)) > 0
local by_id, by_key, keyed, fresh = {}, {}, {}, {}
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
  end
end

-- Write.
if #fresh > 0 then write_newcomers(fresh) end
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
