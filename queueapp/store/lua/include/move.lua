--- @include "group"
--- @include "keys"
--- @include "service"
-- Moves between states. A script collects its moves here and `write_moves` makes them with one command per key;
-- the new home of a job is written before its old one goes.
local moves

local function no_moves()
  moves = {add = {}, remove = {}, waiting = {}, touched = {}, ended = {}, unlink = {}, stats = {},
    groups = {}, seen = {}}
end
no_moves()

local function touch(t, l, head)
  local name = t .. '|' .. l
  local seen = moves.touched[name]
  if not seen then
    seen = {t, l, head}
    moves.touched[name] = seen
    push(moves.touched, seen) -- refreshed in the order of their first touch: it decides V when the walk is empty
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

-- The job becomes pending at rank r, with the number of submission `seq` (as the row spells it) and key set ks or nil.
local function to_pending(id, t, l, tier, r, seq, ks)
  local queue = queue_of(t, l, tier)
  if ks then
    queue = sub_lane(queue, ks)
    sub.touch(queue)
    append(moves.add, queue, r, member_of(id, seq))
    return
  end
  append(moves.add, queue, r, member_of(id, seq))
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
  count('dead')
end

-- The row of an ended job keeps no payload; `extra` are further fields of its hash; ks = its key set or nil.
local function to_ended(id, outcome, extra, ks)
  redis.call('HSET', P .. 'run:' .. id, 's', 'e', 'o', outcome, 'te', now, unpack(extra or {}))
  append(moves.add, 'ended', now, id)
  moves.unlink[#moves.unlink + 1] = P .. 'job:' .. id
  moves.ended[#moves.ended + 1] = id
  if ks then use_keys(ks, -1) end
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
  remove_from(queue, member)
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

-- A waiting job leaves its index (q, qc or scheduled).
local function leave_waiting(id, row, state)
  if state == 's' then
    remove_from('scheduled', id)
  else
    local queue, member = queue_of(row.tenant, row.lane, row.tier), member_of(id, row.seq)
    if row.keys then
      leave_queue(sub_lane(queue, row.keys), member, row.keys)
    else
      remove_from(queue, member)
      touch(row.tenant, row.lane)
    end
  end
  if row.expires then remove_from('expiring', id) end
  count_waiting(row.tenant, -1)
end

local function write_moves()
  sub.look()
  for set, pairs_ in pairs(moves.add) do variadic('ZADD', P .. set, pairs_) end
  for set, ids in pairs(moves.remove) do variadic('ZREM', P .. set, ids) end
  write_groups(moves.groups)
  unlink(moves.unlink)
  local total = 0
  for t, n in pairs(moves.waiting) do
    if n ~= 0 and tonumber(redis.call('ZINCRBY', P .. 'tenants', n, t)) <= 0 then gone_tenants[t] = true end
    total = total + n
  end
  if #moves.seen > 0 then redis.call('ZADD', P .. 'tenants', 'NX', unpack(moves.seen)) end
  if total ~= 0 then redis.call('HINCRBY', P .. 'counts', 'w', total) end
  for stat, n in pairs(moves.stats) do redis.call('HINCRBY', P .. 'stats', stat, n) end
  answer_waiters(moves.ended)
  for _, seen in ipairs(moves.touched) do refresh(seen[1], seen[2], seen[3]) end
  sub.settle()
  no_moves()
end

-- The last lines of every script that moved jobs: pointers right, memory written, wake armed.
local function close()
  write_moves()
  write_slots()
  flush_nodes()
  write_service()
  return arm()
end
