--- @include "group"
--- @include "keys"
--- @include "service"
--- @include "once"
-- Moves between states. A script collects its moves here and `write_moves` makes them with one command per key;
-- the new home of a job is written before its old one goes.
local moves

local function no_moves()
  moves = {add = {}, remove = {}, left = {}, waiting = {}, touched = {}, freed = {}, ended = {}, died = {}, unlink = {},
    stats = {}, groups = {}, seen = {}, told = {}}
end
no_moves()
--- @include "kin"

local function touch(t, l, head)
  local name = t .. '|' .. l
  local seen = moves.touched[name]
  if not seen then
    seen = {t, l, head}
    moves.touched[name] = seen
    push(moves.touched, seen)
  elseif head == nil then
    seen[3] = nil
  end
end

local function count_waiting(t, n)
  moves.waiting[t] = (moves.waiting[t] or 0) + n
end

local function count(stat, n)
  moves.stats[stat] = (moves.stats[stat] or 0) + (n or 1)
end

local function queue_of(t, l, tier)
  return (tier == 'c' and pool.tiered and 'qc:' or 'q:') .. t .. '|' .. l
end

--- @include "waited"
-- The job becomes pending at rank r, with the number of submission `seq` (as the row spells it) and key set ks or nil.
local function to_pending(id, t, l, tier, r, seq, ks)
  local queue = queue_of(t, l, tier)
  if ks then
    queue = sub_lane(queue, ks)
    sub.touch(queue)
    append(moves.add, pool.mark .. queue, r, member_of(id, seq))
    return
  end
  append(moves.add, pool.mark .. queue, r, member_of(id, seq))
  local head = nil
  if not pool.ordered then head = true end
  touch(t, l, head)
end

local function to_scheduled(id, due)
  wake_if_earlier('scheduled', due)
  append(moves.add, 'scheduled', due, id)
end

-- A waiting job that may expire stands in `expiring`, too.
local function to_expiring(row, id)
  if row.expires then
    wake_if_earlier('expiring', row.expires)
    append(moves.add, 'expiring', row.expires, id)
  end
end

-- The job becomes a dead letter. Its row keeps the payload. `given` is the group that a worker named, if any.
local function to_dead(id, t, task, reason, given)
  local group = group_of(given or '', task, reason)
  append(moves.add, 'dead', now, id)
  append(moves.add, 'dead:' .. t, now, id)
  append(moves.add, 'deadgroup:' .. group, now, id)
  moves.groups[group] = true
  push(moves.seen, 0, t)
  redis.call('HSET', P .. 'run:' .. id, 's', 'd', 'o', reason, 'te', now, 'g', group)
  moves.ended[#moves.ended + 1] = id
  moves.died[id] = true
  family.tell(id, 'dead')
  count('dead')
end

-- The row of an ended job keeps no payload, and no checkpoint: no attempt follows. `extra` are further fields of its
-- hash; ks = its key set or nil.
local function to_ended(id, outcome, extra, ks)
  redis.call('HSET', P .. 'run:' .. id, 's', 'e', 'o', outcome, 'te', now, unpack(extra or {}))
  append(moves.add, 'ended', now, id)
  push(moves.unlink, P .. 'job:' .. id, P .. 'checkpoint:' .. id)
  moves.ended[#moves.ended + 1] = id
  if ks then use_keys(ks, -1) end
  family.tell(id, outcome)
  count(outcome)
end

-- What an ended or dead job that was never leased must still tell.
local function identity(row)
  local fields = {'t', row.tenant, 'n', row.task, 'sm', row.submitted}
  if row.lane ~= 'main' then fields[7], fields[8] = 'l', row.lane end
  return fields
end

-- Marks in the row that the hash holds the state from now on.
local function hash_holds_state(id)
  redis.call('SETRANGE', P .. 'job:' .. id, 0, 'h')
end

-- Writes a new place in line into the row, with the byte of its state.
local function write_place(id, state, seq)
  redis.call('SETRANGE', P .. 'job:' .. id, 0, state .. '1' .. seq)
end

local function remove_from(set, member)
  append(moves.remove, set, member)
end

-- A job leaves its queue, which may be a sub-lane; `leased` by this call.
local function leave_queue(queue, member, ks, leased)
  if ks then sub.touch(queue, leased) end
  remove_from(pool.mark .. queue, member)
end

-- A job whose row cannot be read, or is not what its index says, is set aside instead of failing every later call:
-- counted once, whoever else meets it. `stands`: it leaves by this the index where it waits; its tenant and its key set
-- as far as they are known.
local function set_aside(id, stands, t, ks)
  redis.call('ZREM', P .. 'expiring', id)
  if redis.call('SADD', P .. 'quarantine', id) == 1 then
    push(moves.ended, id) -- nobody shall wait for it
    family.tell(id, 'lost')
    count('quarantined')
  end
  if stands and t then
    count_waiting(t, -1)
  elseif stands then
    redis.call('HINCRBY', P .. 'counts', 'w', -1)
  end
  if ks then use_keys(ks, -1) end
end

-- A dead letter leaves its indices.
local function leave_dead(id, t)
  local group = redis.call('HGET', P .. 'run:' .. id, 'g')
  remove_from('dead', id)
  remove_from('dead:' .. t, id)
  if group then
    remove_from('deadgroup:' .. group, id)
    moves.groups[group] = true
    redis.call('HDEL', P .. 'run:' .. id, 'g')
  end
end

--- @include "backlog"
-- The states in which a job waits. In ready it has its slots already, so that `leave_ready` (ready.lua) takes it out.
local WAITING = {p = true, s = true, b = true, i = true, r = true}
local leave_ready

local leave_waiting
do -- a script has 200 local names at most
-- Where a pending job stands if the old generation still has it (generations.lua).
local function leave_old(id, row)
  local old = pool.old
  local queue = (row.tier == 'c' and old.tiered and 'qc:' or 'q:') .. row.tenant .. '|' .. row.lane
  if row.keys then queue = sub_lane(queue, row.keys) end
  append(moves.left, old.mark .. queue, old.ties and row.seq .. id or id)
end

-- A waiting job leaves its index (q, qc, scheduled, backlog or ready; its entry of ingress stays). `run` is its hash,
-- if it has one.
function leave_waiting(id, row, state, run)
  if state == 's' then
    remove_from('scheduled', id)
  elseif state == 'b' then
    backlog.leave(id, row.tenant, row.tier)
  elseif state == 'r' then
    leave_ready(id, row, run)
  elseif state == 'p' then
    local queue, member = queue_of(row.tenant, row.lane, row.tier), member_of(id, row.seq)
    if row.keys then
      leave_queue(sub_lane(queue, row.keys), member, row.keys)
    else
      remove_from(pool.mark .. queue, member)
      touch(row.tenant, row.lane)
    end
    if generation.holds_jobs() then leave_old(id, row) end
  end
  if row.expires then remove_from('expiring', id) end
  count_waiting(row.tenant, -1)
end
end

--- @include "family"
local write_moves
do -- a script has 200 local names at most
-- Answers how many waiting jobs there are more than before. One command of one tenant, two of many.
local function write_waiting()
  local names, scores, total = {}, {}, 0
  for t, n in pairs(moves.waiting) do
    if n ~= 0 then push(names, t) end
    total = total + n
  end
  local stored = #names > 1 and redis.call('ZMSCORE', P .. 'tenants', unpack(names))
  for i, t in ipairs(names) do
    local n = moves.waiting[t]
    local left = stored and tonumber(stored[i] or 0) + n or tonumber(redis.call('ZINCRBY', P .. 'tenants', n, t))
    if left <= 0 then gone_tenants[t] = true end
    if stored then push(scores, left, t) end
  end
  variadic('ZADD', P .. 'tenants', scores)
  return total
end

-- Lanes are refreshed in one order, which decides who goes first among those that enter together: those that jobs of
-- their own came to or left, in the order of the first; then `freed`, those that only got a slot back; then those of
-- sub-lanes (keys.lua). So a ceiling that nobody reaches changes no order, although slots are kept for it.
-- `last`: this call collects no more.
function write_moves(last)
  family.settle()
  sub.look()
  for set, pairs_ in pairs(moves.add) do variadic('ZADD', P .. set, pairs_) end
  for set, ids in pairs(moves.remove) do variadic('ZREM', P .. set, ids) end
  for set, members in pairs(moves.left) do generation.take_out(set, members) end
  write_groups(moves.groups)
  unlink(moves.unlink)
  local total = write_waiting()
  if #moves.seen > 0 then redis.call('ZADD', P .. 'tenants', 'NX', unpack(moves.seen)) end
  if total ~= 0 then redis.call('HINCRBY', P .. 'counts', 'w', total) end
  for stat, n in pairs(moves.stats) do redis.call('HINCRBY', P .. 'stats', stat, n) end
  backlog.write()
  once.give_up(moves.ended, moves.died)
  answer_waiters(moves.ended)
  for _, scope in ipairs(moves.freed) do touch(scope[1], scope[2]) end
  for _, seen in ipairs(moves.touched) do refresh(seen[1], seen[2], seen[3]) end
  sub.settle()
  if not last then no_moves() end
end
end

-- The last lines of every script that moved jobs: pointers right, memory written, wake armed.
local function close()
  write_moves(true)
  write_slots()
  flush_nodes()
  write_service()
  blocks.write()
  write_changes()
  local throttled, first
  if rates.write then throttled, first = rates.write() end
  if first then
    wake_if_earlier('timers', first)
    variadic('ZADD', P .. 'timers', throttled)
  end
  return arm()
end
