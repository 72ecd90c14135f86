#!lua
-- match: new → active; where a limit stands in the way: → pending, ingress, backlog
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker lease_ms
-- Groups: job(id task tenant lane priority tier cost max_attempts max_crashes deadline_ms front fingerprint payload)
-- Refusals: schema
-- Events: stats enqueued, leased; wake w, t; wake:leader i
-- One plain job, which `worker` has begun already, is taken in and leased in one step, ahead of whatever may stand in
-- line by now: no ceiling, pause or rate is passed. Where one is in the way (or the dispatch is scheduled, or nobody
-- knows the worker) it goes into line, or is parked if it asks for that, and the run that began unheard has used up its
-- first attempt, forgiven: no later lease has the same fence. The id is looked up first: a repeat answers the same
-- lease as long as it stands; its token (`ls` of the row) is the job's id. Answers outcome (enqueued, parked, conflict,
-- throttled, backlog_full), ms until it is due or until one more try (0), and the row of the lease (lease.lua), if
-- there is one. front: as of `enqueue`, of one letter.
--- @include "shard"
--- @include "clock"
--- @include "service"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "keysets"
--- @include "keys"
--- @include "move"
--- @include "ingress"
--- @include "pick"
--- @include "moving"
--- @include "lease"
--- @include "front"
--- @include "tiers"
tick()
next_argument = 6
local worker, lease_ms = ARGV[3], tonumber(ARGV[4])
local given = next_group(tonumber(ARGV[5]), 13)[1]
local j = {
  id = given[1], tenant = given[3], lane = given[4], priority = given[5], tier = given[6], cost = given[7],
  max_attempts = given[8], max_crashes = given[9], deadline_ms = given[10], front = given[11],
  fingerprint = given[12], payload = given[13], keys = '',
}
local id, t, l, key = j.id, j.tenant, j.lane, P .. 'run:' .. j.id

if redis.call('EXISTS', P .. 'job:' .. id, key) > 0 then
  local row = read_row(id)
  if row and row.fingerprint ~= j.fingerprint then return {1, 'conflict', 0} end
  if row and (row.state == 'b' or redis.call('HGET', key, 's') == 'b') then
    return {1, 'parked', math.max(0, row.submitted + (row.delay or 0) - now)}
  end
  return {1, 'enqueued', 0, leased_before(worker, id)[1]}
end
local front = (pool.front or pool.room) and open_front()
if front then
  front.load({j})
  front.judge(j)
  if j.outcome then return {1, j.outcome, j.wait or 0} end
end

-- Read: its row, its rank, and whether it may start. A lane and a tenant that may stand in the walk.
stamp_schema()
local seq, number = j.parked and 0 or take_seq(1), redis.call('HGET', P .. 'tasks', given[2])
if not number then
  number = redis.call('HLEN', P .. 'tasks') + 1
  redis.call('HSET', P .. 'tasks', given[2], number)
  redis.call('HSET', P .. 'names', number, given[2])
end
local root, T = node(''), node(t)
load_limits({'t:' .. t, 'l:' .. t .. '|' .. l})
j.keys, j.stood = nil, pool.blocks and not j.parked and waited.stood(j) or nil
local row = parse_row(build_row('p', seq, j, now, number))
local rank_ = not pool.scheduled and not j.parked and rank(row, seq, now)
local starts = rank_ and not pool.mirrored and redis.call('ZSCORE', P .. 'workers', worker) and pool_open()
if starts then
  refresh(t, l, pool.ordered and rank_ or true, pool.ties and hex(seq) or '')
  starts = score(root, t) and score(T, l)
end

-- Write.
local rows = {}
count_waiting(t, 1)
count('enqueued')
if row.tier == 'c' then begin_tiers() end
if starts then
  local text, found, scope = build_row('p', seq, j, now, number), new_found(), scope_of(t, l)
  load_order(root, 2)
  load_order(T, 2)
  floor.begin(root, 2)
  local for_minimum = pool.floors and floor.run < floor.MOST and floor.below(t)
  local ch, fs = charge(t, l, row, rank_, for_minimum)
  take_slots(t, l, id)
  if scope.tenant.rule then rates.take('dt:' .. t, scope.tenant.rule) end
  if scope.lane.rule then rates.take('dl:' .. scope.name, scope.lane.rule) end
  redis.call('SET', P .. 'job:' .. id, text)
  push(found.jobs, {
    id = id, row = row, r = rank_, set = queue_of(t, l, row.tier), member = member_of(id, row.seq), text = text,
    ch = ch, fs = fs,
  })
  rows = commit_leases(found, worker, id, lease_ms, 1)
  push(moves.seen, 0, t)
  gone_tenants[t] = true
  touch(t, l)
else
  local state = j.parked and 'b' or pool.scheduled and 'i' or 'p'
  local fields = {'s', state, 'a', 1, 'en', 1, 'f', 1, 't', t, 'n', number, 'sm', now}
  if l ~= 'main' then push(fields, 'l', l) end
  if j.stood then push(fields, 'ue', j.stood) end
  redis.call('SET', P .. 'job:' .. id, build_row('h', seq, j, now, number))
  redis.call('HSET', key, unpack(fields))
  if j.parked then
    backlog.enter(id, t, row.tier, j.due)
    count('parked')
  elseif pool.scheduled then
    to_ingress(id, row, seq, now)
  else
    to_pending(id, t, l, row.tier, rank_, row.seq)
  end
end
if front then front.write({j}) end
close()
return {1, j.parked and 'parked' or 'enqueued', j.parked and j.due - now or 0, rows[1]}
