--- @include "waiters"
-- Sub-lanes: where jobs with concurrency keys stand. The same rules in Python are queueapp/policies/keyed.py, held to
-- the same order by tests/model/test_parity.py; jobs without keys meet none of this.
--
-- Sets. The jobs of one lane and tier with one key set `ks` stand in order in `q:<t>|<l>|@<ks>` (`qc:`), the sub-lane.
-- While it may run, its pointer `@<ks>` stands in `q:<t>|<l>` (`qc:`) at the rank of its head, and where ranks tie
-- behind the head's number of submission; the walk meets it like a job. When one of its keys is full it is parked: it
-- stands among the waiters of that key (waiters.lua), `parked` (HASH set → digest) says of which, and the lane knows
-- nothing of it. A sub-lane with jobs is in exactly one of the two, an empty one in neither. `sublanes` (ZSET by name)
-- lists those with jobs, for readers.
--
-- A call that changes sub-lanes notes each before its first change (`touch`), and does the rest in `write_moves`:
--   look    before the moves: is it parked, and what is its head (so that its pointer is known)?
--   settle  after the moves, and after the lanes that other jobs touched were refreshed:
--     place each touched sub-lane, in the order of the first touch:
--       parked:  emptied → no waiter any more; a new head → its rank there. Nothing else.
--       else:    no key full → pointer to the head's place; a key full → pointer out, parked on the first full one;
--                empty → pointer out. It stood, leased nothing in this call and stands no more: what it was offered
--                goes on, one offer of each of its keys.
--     charge the turns at the keys for what was leased.
--     refresh the lanes of all that were not parked, now that every pointer is right.
--     then offer each key, in the order of the first offer (wake): a slot that was given back is one offer, a sweep or
--       a new limit are as many as are free. At most 8 waiters that fit (used + woken here < their own limit), in the
--       order of waiters.lua, leave the list: held up by another key → parked on that one; else into the lane and
--       refresh. Only one whose tenant and lane may run uses up the offer: whoever is paused or at a ceiling goes back
--       to its lane and competes when it may, so that nobody waits behind it. A ninth is due for the sweep at once.
--   Nothing in a wake parks for want of the key that is offered, so there is no recursion. The pick parks in memory: a
--   sub-lane that it meets with a full key is touched, and `place` finds the key full. At most 16 a call; then its
--   lane is passed over in this call, and the reply says that there is more to do.
--
-- Why no wake is lost: a sub-lane is parked only on a key that is full at that moment, and each slot of it that is
-- given back is offered to one waiter that fits every key at that moment. It is promised nothing and competes by its
-- tenant's turn; the offer is used up by a lease, and passed on when the sub-lane steps aside, is cancelled or expires.
-- What is lost otherwise (a pause after the offer; a turn that is far away) is repaired by the sweep: `waitkeys` holds
-- every key with waiters at the moment of the next look; `cycle` looks at 8 that are due, `promote_due` at as many as
-- its limit. Where somebody was woken and others wait still, that is a second later. A full key needs no look: what is
-- given back is offered at once, a new limit makes all keys of its pattern due. It is looked at all the same, after
-- 30 s, and after each look in vain twice as late, up to 16 minutes; the fraction of the moment, in eighths, counts
-- those. No job holds one key while it waits for another: all slots are taken by the script that leases, or none.
--
-- Replays. All of it hangs on the state of the job: a repeated call moves no job, so it touches nothing. Slots are
-- memberships: given back twice is once, and only `end_lease` of the owner offers. An offer too many costs one park.
--
-- Cost. Jobs without keys: nothing, not a command. With: per sub-lane and call two ZRANGE, a ZCARD a key, one write;
-- for all one HMGET of `parked`; a lease and its end ZADD and ZREM a key, and one ZRANGE a key given back; one that
-- waits comes and goes in about ten commands each.
local sub = {touched = {}, offers = {}, swept = {}}
local sub_lane
do -- a script has 200 local names at most
local SWEEP_MS, FULL_MS, DOUBLED_MOST, MOVED_MOST, PAGE = 1000, 30000, 5, 8, 200

function sub_lane(queue, ks) return queue .. '|@' .. ks end

local function of_set(set)
  local queue, t, l, ks = string.match(set, '^(qc?:([^|]+)|([^|]+))|@(.+)$')
  return {set = set, queue = queue, t = t, l = l, ks = ks}
end

-- Call before the first change of the sub-lane. `leased`: a job of it was.
function sub.touch(set, leased)
  local s = sub.touched[set]
  if not s then
    s = of_set(set)
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
  for i, digest in ipairs(redis.call('HMGET', W .. 'parked', unpack(sets))) do
    local s = sub.touched[i]
    local head = redis.call('ZRANGE', W .. s.set, 0, 0, 'WITHSCORES')
    s.parked, s.head, s.rank = digest, head[1], head[2]
  end
end

local function pointer_to(head, ks) return tie_of(head) .. '@' .. ks end

-- `moment`: it waits for a token, which there is then.
local function park(s, digest, r, tie, moment)
  redis.call('HSET', W .. 'parked', s.set, digest)
  blocks.mark_sub_lane(s.t, s.l, s.set, true)
  local first = waiters.put(s, digest, r, tie)
  if moment then
    wake_if_earlier(pool.mark .. 'waitkeys', moment)
    redis.call('ZADD', W .. 'waitkeys', 'LT', moment, digest)
  elseif first then
    redis.call('ZADD', W .. 'waitkeys', 'NX', now + FULL_MS, digest)
  end
end

local function unpark(s, digest, tie)
  redis.call('HDEL', W .. 'parked', s.set)
  blocks.mark_sub_lane(s.t, s.l, s.set, false)
  if waiters.drop(s, digest, tie) then redis.call('ZREM', W .. 'waitkeys', digest) end
end

function sub.place(s)
  local found = redis.call('ZRANGE', W .. s.set, 0, 0, 'WITHSCORES')
  local head, r = found[1], found[2]
  if head and not s.head then redis.call('ZADD', W .. 'sublanes', 0, s.set) end
  if s.head and not head then redis.call('ZREM', W .. 'sublanes', s.set) end
  if not head and pool.blocks and not generation.holds_jobs() then blocks.forget(s.set) end
  if s.parked then
    if not head then
      unpark(s, s.parked, tie_of(s.head))
    elseif head ~= s.head then
      waiters.put(s, s.parked, r, tie_of(head), tie_of(s.head))
    end
    return
  end
  local full, moment
  if head then full, moment = full_key(s.ks) end
  local old, new = s.head and pointer_to(s.head, s.ks), head and not full and pointer_to(head, s.ks)
  if new and (new ~= old or r ~= s.rank) then redis.call('ZADD', W .. s.queue, r, new) end
  if old and old ~= new then redis.call('ZREM', W .. s.queue, old) end
  if full then
    park(s, full, r, tie_of(head), moment)
  elseif head and pool.blocks and (pool.old or not s.head) then
    blocks.mark_sub_lane(s.t, s.l, s.set, false) -- it may have waited in the old generation
  end
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
    and not (rates.write and not rates.admit(t, scope))
end

-- When to look again at a key for which somebody waits still, after `moved` of them left. `later`: when its rate lets
-- somebody start whom it holds back.
local function look_again(digest, moved, at_once, later)
  local swept, due = sub.swept[digest], at_once and now or now + SWEEP_MS
  if later and not at_once then
    if moved > 0 then later = math.min(later, due) end
    wake_if_earlier(pool.mark .. 'waitkeys', later)
    if swept then
      redis.call('ZADD', W .. 'waitkeys', 'XX', later, digest)
    else
      redis.call('ZADD', W .. 'waitkeys', 'XX', 'LT', later, digest)
    end
    return
  end
  if not swept then
    if moved > 0 then redis.call('ZADD', W .. 'waitkeys', 'XX', 'LT', due, digest) end
    return
  end
  if moved == 0 then
    local doubled = math.min(swept % 1 * 8 + 1, DOUBLED_MOST)
    due = now + FULL_MS * 2 ^ doubled + doubled / 8
  end
  redis.call('ZADD', W .. 'waitkeys', 'XX', due, digest)
end

function sub.wake(digest, offered)
  local woken, moved, found, later = 0, 0, nil, nil
  while moved < MOVED_MOST and woken ~= offered do
    found, later = waiters.first(digest, woken)
    if not found then break end
    local s, tie = of_set(id_of(found.member)), tie_of(found.member)
    local fits = admits(s.t, s.l)
    local other, moment = full_key(s.ks, digest)
    moved = moved + 1
    if not other and fits then
      woken = woken + 1
      waiters.began(digest, found.turn)
    end
    unpark(s, digest, tie)
    if other then
      park(s, other, found.r, tie, moment)
    else
      redis.call('ZADD', W .. s.queue, found.r, tie .. '@' .. s.ks)
      freed[s.t] = true
      refresh(s.t, s.l)
    end
  end
  look_again(digest, moved, moved == MOVED_MOST and woken ~= offered, later)
end

function sub.settle()
  for _, s in ipairs(sub.touched) do sub.place(s) end
  waiters.charge()
  for _, s in ipairs(sub.touched) do
    if not s.parked then refresh(s.t, s.l) end
  end
  for _, digest in ipairs(sub.offers) do
    local offered = sub.offers[digest]
    sub.wake(digest, offered ~= true and offered or nil)
  end
  if next(key_uses) then write_key_uses() end
  sub.touched, sub.offers, sub.swept = {}, {}, {}
end

-- Looks at up to `limit` keys with waiters whose time has come. True = there may be more.
function sub.sweep(limit)
  if not pool.keyed then return false end
  local due = redis.call('ZRANGEBYSCORE', W .. 'waitkeys', '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #due, 2 do
    sub.swept[due[i]] = tonumber(due[i + 1])
    sub.offer(due[i])
  end
  return #due == 2 * limit
end

-- Makes due the keys with waiters that compare with the limit of one of `patterns`, page by page; answers the cursor of
-- the next page, '0' = done.
function sub.make_due(patterns, cursor)
  local page = redis.call('ZSCAN', W .. 'waitkeys', cursor, 'COUNT', PAGE)
  for i = 1, #page[2], 2 do
    local digest = page[2][i]
    if waiters.compare(digest, patterns) then redis.call('ZADD', W .. 'waitkeys', 'XX', 'LT', now, digest) end
  end
  return page[1]
end
end
