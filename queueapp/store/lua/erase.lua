#!lua flags=allow-oom
-- erase: jobs of a tenant, in whatever state → gone
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant mode
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats erased; wake w; wake:leader i; done:<waiter>
-- Nothing of them is left: no row, arguments, result, error, progress. A body that runs goes on; its slots are free,
-- and what it says or saves is refused, because nobody knows the job any more. Rows that nobody can read go, too, where
-- something still says whose they are.
-- A job on its way to another pool may arrive there after it has gone here. So it goes in three steps: here it is asked
-- back (`bk`, transit.lua), and from then on not packed any more; the other pool is told (mode bar) that it has come
-- and gone, for longer than a pack is good for; then it goes here (mode barred). What has ever moved leaves that note
-- by itself (`erased:<id>`, without a name), as an `arrive` may be on its way twice.
-- mode look: changes nothing, and answers what would be. Answers one word per id: erased, moving and where to (asked
-- back, now or before), other (of another tenant), unknown (nobody can read whose it is), gone.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "owner"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "finish"
--- @include "due"
local tenant, mode = ARGV[3], ARGV[4]
if mode ~= 'look' then tick() end
next_argument = 6
local ERASED_MS = 600000 -- more than a pack is good for (transit.lua), whatever a caller does meanwhile
local KINDS = {'job:', 'run:', 'result:', 'errors:', 'data:', 'checkpoint:', 'children:', 'open:'}

-- It has come here, and gone.
local function bar(id) redis.call('SET', P .. 'erased:' .. id, 1, 'PX', ERASED_MS) end

-- Out of every index in which a job may stand whose row nobody can read, or that is not what its index says. One that
-- stands in none was set aside, and counts no more.
local function leave_everywhere(id, row, run)
  local t, l, ks = tenant, row and row.lane or run and run.l or 'main', row and row.keys or run and run.k
  local aside, member = redis.call('SREM', P .. 'quarantine', id) == 1, member_of(id, row and row.seq or '')
  local function taken_from(sets)
    local n = 0
    for _, set in ipairs(sets) do n = n + redis.call('ZREM', P .. set, id) end
    return n
  end
  taken_from({'expiring'})
  local over, runs, ready = taken_from({'ended', 'stubs'}), taken_from({'active'}), taken_from({'ready'})
  local holds, waits = runs + taken_from({'moving', 'dead', 'waiting'}), ready + taken_from({'scheduled', 'backlog'})
  for _, tier in ipairs({'', 'c'}) do
    local queue = queue_of(t, l, tier)
    backlog.leave(id, t, tier)
    for _, set in ipairs(ks and {queue, sub_lane(queue, ks)} or {queue}) do
      if redis.call('ZSCORE', P .. pool.mark .. set, member) then
        leave_queue(set, member, set ~= queue)
        waits = waits + 1
      end
    end
  end
  -- What it has in ingress stays there, and is dropped when a leader meets it.
  if not aside and over + holds + waits == 0 and (pool.scheduled or pool.leftover) then waits = 1 end
  if run and run.s == 'a' then
    end_lease(run)
  elseif run and ready == 1 then
    leave_ready(id, row, run)
  elseif runs + ready == 1 then
    if release_slots(t, l, id) then push(moves.freed, {t, l}) end
    if ks then sub.release(ks, id) end
  elseif run and run.s == 'd' then
    leave_dead(id, t)
  else
    remove_from('dead:' .. t, id)
  end
  if waits > 0 then
    touch(t, l)
    count_waiting(t, -waits)
  end
  if waits + holds > 0 and ks then use_keys(ks, -1) end
end

-- Out of the index that its state names.
local ELSEWHERE = {a = true, d = true, m = true, e = true, w = true}
local function leave_place(id, row, state, run)
  if WAITING[state] then
    leave_waiting(id, row, state, run)
  elseif state == 'a' then
    end_lease(run)
  elseif state == 'd' then
    leave_dead(id, tenant)
  elseif state == 'm' then
    remove_from('moving', id)
  elseif state == 'w' then
    family.leave(id, row)
  else
    remove_from('ended', id)
    remove_from('stubs', id)
  end
  if state ~= 'e' and row.keys then use_keys(row.keys, -1) end
end

-- One that is on its way stays until the other pool is told: where it goes.
local function leaves_for(id, state)
  if state ~= 'm' then return nil end
  local v = redis.call('HMGET', P .. 'run:' .. id, 'bk', 'mv')
  if v[1] and mode == 'barred' then return nil end
  if not v[1] and mode ~= 'look' then redis.call('HSET', P .. 'run:' .. id, 'bk', now) end
  return v[2] or ''
end

local words, done = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[5]), 1)) do
  local id, word = j[1], 'gone'
  local row = read_row(id)
  local run, wrong = read_run(id)
  local t = row and row.tenant or run and run.t
  local state = run and run.s or row and row.state
  local target = t == tenant and not done[id] and leaves_for(id, state)
  if done[id] then
    word = 'erased'
  elseif not t and redis.call('EXISTS', P .. 'job:' .. id, P .. 'run:' .. id) > 0 then
    word = 'unknown'
  elseif t and t ~= tenant then
    word = 'other'
  elseif target then
    word = 'moving ' .. target
  elseif t and mode == 'look' then
    word = 'erased'
  elseif t then
    local whole = not wrong and (WAITING[state] or ELSEWHERE[state]) and (row or state == 'e')
    if run and redis.call('HEXISTS', P .. 'run:' .. id, 'hp') == 1 then bar(id) end
    if whole and redis.call('SISMEMBER', P .. 'quarantine', id) == 0 then
      leave_place(id, row, state, run)
    else
      leave_everywhere(id, row, run)
    end
    for _, kind in ipairs(KINDS) do push(moves.unlink, P .. kind .. id) end
    push(moves.ended, id)
    if pool.sweeps then family.swept('c:' .. id, 'h:' .. id) end
    count('erased')
    done[id], word = true, 'erased'
  end
  if mode == 'bar' and word ~= 'other' and word ~= 'unknown' then bar(id) end
  words[i] = word
end
if next(done) then
  write_held()
  close()
end
return {1, words}
