--- @include "keysets"
-- Sub-lanes: where jobs with concurrency keys stand. The same rules in Python are queueapp/policies/keyed.py, held to
-- the same order by tests/model/test_parity.py; jobs without keys meet none of this.
--
-- Sets. The jobs of one lane and tier with one key set `ks` stand in order in `q:<t>|<l>|@<ks>` (`qc:`), the sub-lane.
-- While it may run, its pointer `@<ks>` stands in `q:<t>|<l>` (`qc:`) at the rank of its head, and where ranks tie
-- behind the head's number of submission; the walk meets it like a job. When one of its keys is full it is parked: the
-- name of its set stands in `blocked:<digest>` at the rank of its head, `parked` (HASH set → digest) says where, and
-- the lane knows nothing of it. A sub-lane with jobs is in exactly one of the two, an empty one in neither. `sublanes`
-- (ZSET by name) lists those with jobs, for readers.
--
-- A call that changes sub-lanes notes each before its first change (`touch`), and does the rest in `write_moves`:
--   look    before the moves: is it parked, and what is its head (so that its pointer is known)?
--   settle  after the moves, and after the lanes that other jobs touched were refreshed:
--     place each touched sub-lane, in the order of the first touch:
--       parked:  emptied → out of `blocked` and `parked`; a new head → its rank there. Nothing else.
--       else:    no key full → pointer to the head's place; a key full → pointer out, parked on the first full one;
--                empty → pointer out. It stood, leased nothing in this call and stands no more: what it was offered
--                goes on, one offer of each of its keys.
--     refresh the lanes of all that were not parked, now that every pointer is right.
--     then offer each key, in the order of the first offer (wake): a slot that was given back is one offer, a sweep or
--       a new limit are as many as are free. Of the first 64 waiters, at most 8 of those that fit (used + woken here <
--       their own limit) leave the list: held up by another key → parked on that one; else into the lane and refresh.
--       Only one whose tenant and lane may run uses up the offer: whoever is paused or at a ceiling goes back to its
--       lane and competes when it may, so that nobody waits behind it. A ninth is due for the sweep at once.
--   Nothing in a wake parks for want of the key that is offered, so there is no recursion. The pick parks in memory: a
--   sub-lane that it meets with a full key is touched, and `place` finds the key full. At most 16 a call; then its
--   lane is passed over in this call, and the reply says that there is more to do.
--
-- Why no wake is lost: a sub-lane is parked only on a key that is full at that moment, and each slot of it that is
-- given back is offered to one waiter that fits every key at that moment. It is promised nothing and competes by its
-- tenant's turn; the offer is used up by a lease, and passed on when the sub-lane steps aside, is cancelled or expires.
-- What is lost otherwise (a pause after the offer; a turn that is far away) is repaired by the sweep: `waitkeys` holds
-- every key with waiters at the moment of the next look, a second after the last; `cycle` looks at 8 that are due,
-- `promote_due` at as many as its limit. No job holds one key while it waits for another: all slots are taken by the
-- script that leases, or none.
--
-- Replays. All of it hangs on the state of the job: a repeated call moves no job, so it touches nothing. Slots are
-- memberships: given back twice is once, and only `end_lease` of the owner offers. An offer too many costs one park.
--
-- Cost. Jobs without keys: nothing, not a command. With: per sub-lane and call two ZRANGE, a ZCARD a key, one write;
-- for all one HMGET of `parked`; a lease and its end ZADD and ZREM a key, and one ZRANGE a key given back.
local sub = {touched = {}, offers = {}}
local sub_lane
do -- a script has 200 local names at most
local SWEEP_MS, LOOKED_AT, MOVED_MOST = 1000, 64, 8

function sub_lane(queue, ks) return queue .. '|@' .. ks end

-- Call before the first change of the sub-lane. `leased`: a job of it was.
function sub.touch(set, leased)
  local s = sub.touched[set]
  if not s then
    local queue, t, l, ks = string.match(set, '^(qc?:([^|]+)|([^|]+))|@(.+)$')
    s = {set = set, queue = queue, t = t, l = l, ks = ks}
    sub.touched[set] = s
    push(sub.touched, s)
  end
  s.leased = s.leased or leased
end

-- slots: how many are free of the key; nil = as many as are.
function sub.offer(digest, slots_)
  local known = sub.offers[digest]
  if known == nil then push(sub.offers, digest) end
  sub.offers[digest] = slots_ and known ~= true and (known or 0) + slots_ or true
end

-- The lease of a job with keys ended.
function sub.release(ks, id)
  for _, key in ipairs(keyset(ks)) do
    local scope = 'k:' .. key.digest
    local gone = redis.call('ZREM', P .. 'slots:' .. scope, id)
    if slots.used[scope] then slots.used[scope] = slots.used[scope] - gone end
    sub.offer(key.digest, 1)
  end
end

function sub.look()
  if #sub.touched == 0 then return end
  local sets, names = {}, {}
  for i, s in ipairs(sub.touched) do sets[i], names[i] = s.set, s.ks end
  load_keysets(names)
  for i, digest in ipairs(redis.call('HMGET', P .. 'parked', unpack(sets))) do
    local s = sub.touched[i]
    local head = redis.call('ZRANGE', P .. s.set, 0, 0, 'WITHSCORES')
    s.parked, s.head, s.rank = digest, head[1], head[2]
  end
end

local function pointer_to(head, ks) return tie_of(head) .. '@' .. ks end

local function park(set, digest, r)
  redis.call('ZADD', P .. 'blocked:' .. digest, r, set)
  redis.call('HSET', P .. 'parked', set, digest)
  redis.call('ZADD', P .. 'waitkeys', 'NX', now + SWEEP_MS, digest)
end

local function unpark(set, digest)
  redis.call('ZREM', P .. 'blocked:' .. digest, set)
  redis.call('HDEL', P .. 'parked', set)
  if redis.call('EXISTS', P .. 'blocked:' .. digest) == 0 then redis.call('ZREM', P .. 'waitkeys', digest) end
end

function sub.place(s)
  local found = redis.call('ZRANGE', P .. s.set, 0, 0, 'WITHSCORES')
  local head, r = found[1], found[2]
  if head and not s.head then redis.call('ZADD', P .. 'sublanes', 0, s.set) end
  if s.head and not head then redis.call('ZREM', P .. 'sublanes', s.set) end
  if s.parked then
    if not head then
      unpark(s.set, s.parked)
    elseif r ~= s.rank then
      redis.call('ZADD', P .. 'blocked:' .. s.parked, r, s.set)
    end
    return
  end
  local full = head and full_key(s.ks)
  local old, new = s.head and pointer_to(s.head, s.ks), head and not full and pointer_to(head, s.ks)
  if new and (new ~= old or r ~= s.rank) then redis.call('ZADD', P .. s.queue, r, new) end
  if old and old ~= new then redis.call('ZREM', P .. s.queue, old) end
  if full then park(s.set, full, r) end
  if old and not new and not s.leased then
    for _, key in ipairs(keyset(s.ks)) do sub.offer(key.digest, 1) end
  end
end

local function admits(t, l)
  local scope = scope_of(t, l)
  local tenant, lane = scope.tenant, scope.lane
  return not tenant.paused and not lane.paused
    and not (tenant.max and slots_used('t:' .. t) >= tenant.max)
    and not (lane.max and slots_used('l:' .. scope.name) >= lane.max)
end

local function limit_in(ks, digest)
  for _, key in ipairs(keyset(ks)) do
    if key.digest == digest then return limit_of_key(key) end
  end
  return 0 -- a key that is not in the set: `verify` reports it
end

function sub.wake(digest, offered)
  local waiters, names, parts = redis.call('ZRANGE', P .. 'blocked:' .. digest, 0, LOOKED_AT - 1, 'WITHSCORES'), {}, {}
  if #waiters == 0 then return end
  for i = 1, #waiters, 2 do
    parts[i] = {string.match(waiters[i], '^(qc?:([^|]+)|([^|]+))|@(.+)$')}
    push(names, parts[i][4])
  end
  load_keysets(names)
  local woken, moved, used = 0, 0, slots_used('k:' .. digest)
  for i = 1, #waiters, 2 do
    if moved == MOVED_MOST or woken == offered then break end
    local set, r, queue, t, l, ks = waiters[i], waiters[i + 1], unpack(parts[i])
    if used + woken < limit_in(ks, digest) then
      moved = moved + 1
      local other = full_key(ks, digest)
      unpark(set, digest)
      if other then
        park(set, other, r)
      else
        redis.call('ZADD', P .. queue, r, pointer_to(redis.call('ZRANGE', P .. set, 0, 0)[1], ks))
        refresh(t, l)
        if admits(t, l) then woken = woken + 1 end
      end
    end
  end
  if moved == MOVED_MOST and woken ~= offered then redis.call('ZADD', P .. 'waitkeys', 'XX', now, digest) end
end

function sub.settle()
  for _, s in ipairs(sub.touched) do sub.place(s) end
  for _, s in ipairs(sub.touched) do
    if not s.parked then refresh(s.t, s.l) end
  end
  for _, digest in ipairs(sub.offers) do
    local offered = sub.offers[digest]
    sub.wake(digest, offered ~= true and offered or nil)
  end
  if next(key_uses) then write_key_uses() end
  sub.touched, sub.offers = {}, {}
end

-- Keys with waiters that nobody has looked at for a second; `when` = up to this moment. True = there may be more.
function sub.sweep(limit, when)
  if not pool.keyed then return false end
  local due = redis.call('ZRANGEBYSCORE', P .. 'waitkeys', '-inf', when, 'LIMIT', 0, limit)
  for _, digest in ipairs(due) do
    redis.call('ZADD', P .. 'waitkeys', now + SWEEP_MS, digest)
    sub.offer(digest)
  end
  return #due == limit
end
end
