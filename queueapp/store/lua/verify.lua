#!lua flags=no-writes
-- verify: recount a quiet shard, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups:
-- Refusals: schema
-- Events: none
-- Answers the violations found, none when all is well: one index per job, slots = leases, held = leases, pointers =
-- heads, each sub-lane in one place, counts = queues, no stray key, every helper key with an expiry.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "keysets"
--- @include "audit"
--- @include "audit_keys"
--- @include "audit_front"
--- @include "audit_stops"
--- @include "audit_family"
local WAITS = {p = true, s = true, b = true, i = true, r = true}
local waiting, per_tenant, slots_want, held_want, lanes_want, dead_want, group_want = 0, {}, {}, {}, {}, {}, {}
local function expect(t, k, id)
  t[k] = t[k] or {}
  t[k][id] = true
end

for id, job in pairs(info) do
  if WAITS[job.state] then
    waiting = waiting + 1
    per_tenant[job.t] = (per_tenant[job.t] or 0) + 1
  end
  if WAITS[job.state] or job.state == 'w' then
    local listed = redis.call('ZSCORE', P .. 'expiring', id)
    if (job.row and job.row.expires and true or false) ~= (listed and true or false) then
      report('%s and expiring differ', id)
    end
  end
  local ks = job.row and job.row.keys
  local waits = ks and parked[(tiers[id] or 'q') .. ':' .. job.t .. '|' .. job.l .. '|@' .. ks]
  if job.state == 'p' and not waits and not in_old[id] then expect(lanes_want, job.t, job.l) end
  if job.state == 'd' then
    expect(dead_want, job.t, id)
    expect(group_want, redis.call('HGET', P .. 'run:' .. id, 'g') or 'no group', id)
  end
  if job.state == 'a' or job.state == 'r' then
    for _, scope in ipairs(scope_of(job.t, job.l).counted) do expect(slots_want, scope, id) end
    for _, key in ipairs(job.run.k and keyset(job.run.k) or {}) do expect(slots_want, 'k:' .. key.digest, id) end
    if job.state == 'a' then expect(held_want, job.run.w, id) end
  end
end

-- Two families of sets must hold just what was counted.
local function compare(kind, want, read)
  for name in pairs(found[kind]) do
    for _, id in ipairs(redis.call(read[1], P .. kind .. ':' .. name, unpack(read, 2))) do
      if not (want[name] and want[name][id]) then report('%s:%s holds %s wrongly', kind, name, id) end
    end
  end
  for name, ids_ in pairs(want) do
    for id in pairs(ids_) do
      local there
      if read[1] == 'SMEMBERS' then
        there = redis.call('SISMEMBER', P .. kind .. ':' .. name, id) == 1
      else
        there = redis.call('ZSCORE', P .. kind .. ':' .. name, id)
      end
      if not there then report('%s:%s lacks %s', kind, name, id) end
    end
  end
end
compare('slots', slots_want, {'ZRANGE', 0, -1})
compare('dead', dead_want, {'ZRANGE', 0, -1})
compare('deadgroup', group_want, {'ZRANGE', 0, -1})
compare('held', held_want, {'SMEMBERS'})

-- Every group stands in `deadgroups` at the death of its newest member, and no other does.
local listed_groups = redis.call('ZRANGE', P .. 'deadgroups', 0, -1, 'WITHSCORES')
for i = 1, #listed_groups, 2 do
  local newest = redis.call('ZRANGE', P .. 'deadgroup:' .. listed_groups[i], -1, -1, 'WITHSCORES')
  if newest[2] ~= listed_groups[i + 1] then
    report('deadgroups has %s at %s', listed_groups[i], listed_groups[i + 1])
  end
end
for group in pairs(found.deadgroup) do
  if not redis.call('ZSCORE', P .. 'deadgroups', group) then report('deadgroups lacks %s', group) end
end

for _, id in ipairs(members('expiring')) do
  local state = info[id] and info[id].state
  if not WAITS[state] and state ~= 'w' then report('expiring holds %s in state %s', id, tostring(state)) end
end

-- Counters.
local stored = redis.call('HGETALL', P .. 'counts')
for i = 1, #stored, 2 do
  local n, want = tonumber(stored[i + 1]), stored[i] == 'w' and waiting or 0
  if n ~= want then report('counts %s is %d, counted %d', stored[i], n, want) end
end
if waiting > 0 and redis.call('HEXISTS', P .. 'counts', 'w') == 0 then report('counts lacks w') end
for t in pairs(dead_want) do per_tenant[t] = per_tenant[t] or 0 end -- one with dead letters stays listed
stored = redis.call('ZRANGE', P .. 'tenants', 0, -1, 'WITHSCORES')
for i = 1, #stored, 2 do
  local t, n = stored[i], tonumber(stored[i + 1])
  local want = per_tenant[t] or 0
  if n ~= want then report('tenants has %s at %d, counted %d', t, n, want) end
  per_tenant[t] = nil
end
for t, n in pairs(per_tenant) do report('tenants lacks %s, counted %d', t, n) end

-- Walk: in it exactly what is runnable; under an ordered policy each pointer is the rank of its head.
-- `heads` names the member that each child has in the walk, and no other.
local function first_place(t, l)
  local head = redis.call('ZRANGE', W .. 'q:' .. t .. '|' .. l, 0, 0, 'WITHSCORES')
  return tonumber(head[2]), tie_of(head[1])
end
local function check_child(set, heads, c, runnable, pointer, tie)
  local stored = pool.ties and redis.call('HGET', W .. heads, c)
  local S = tonumber(redis.call('ZSCORE', W .. set, (stored or '') .. c) or nil)
  if stored and not S then report('%s has %s, which %s lacks', heads, c, set) end
  if runnable and not S then report('%s lacks %s, which is runnable', set, c) end
  if S and not runnable then report('%s holds %s, which is not runnable', set, c) end
  if S and runnable and pool.ordered and (S ~= pointer or (stored or '') ~= tie) then
    report('%s: pointer of %s is not its head', set, c)
  end
end
-- Has it a token? Who waits for one stands in `timers`, at the moment when it has one or before. Who has one by now may
-- stand there still, or in the walk already; by a clock that was set back, who stands there is stopped at the pick.
local set_back = tonumber(redis.call('HGET', P .. 'marks', 'clock') or 0) > now
local function may_start(set, heads, c, field, limit)
  if not limit.rule then return true end
  local moment = rates.moment('d' .. field, limit.rule)
  local look = tonumber(redis.call('ZSCORE', P .. 'timers', field) or nil)
  local tie = pool.ties and redis.call('HGET', W .. heads, c) or ''
  local stands_ = redis.call('ZSCORE', W .. set, tie .. c)
  if moment > now and not (set_back and stands_) then
    if not look or (look > moment and not set_back) then
      report('timers lacks %s, which waits for a token', field)
    end
    return false
  end
  return stands_ and true or not (look and (look <= now or set_back))
end
local function check_heads(set, heads)
  local named = pool.ties and redis.call('ZCARD', W .. set) or 0
  if redis.call('HLEN', W .. heads) ~= named then report('%s does not name just the members of %s', heads, set) end
end
local V, known, any = tonumber(redis.call('HGET', W .. 'policy', 'V') or 0), {}, false
for t in pairs(lanes_want) do known[t] = true end
for t in pairs(found.lanes) do known[t] = true end
for t in pairs(found.heads) do known[t] = true end
for _, member in ipairs(members('walk')) do known[id_of(member)] = true end
for t in pairs(known) do
  local best, best_tie, has_lane = nil, '', false
  for l in pairs(lanes_want[t] or {}) do
    local field = 'l:' .. t .. '|' .. l
    local limit = limit_of(field)
    local runs = not limit.paused and not (limit.max and slots_used(field) >= limit.max)
      and may_start('lanes:' .. t, 'heads:' .. t, l, field, limit)
    local pointer, tie
    if pool.ordered then pointer, tie = first_place(t, l) end
    check_child('lanes:' .. t, 'heads:' .. t, l, runs, pointer, tie)
    if runs then has_lane = true end
    if runs and pool.ordered and (not best or pointer < best or (pointer == best and less(tie, best_tie))) then
      best, best_tie = pointer, tie
    end
  end
  check_heads('lanes:' .. t, 'heads:' .. t)
  for _, member in ipairs(members('lanes:' .. t)) do
    local l = id_of(member)
    if not (lanes_want[t] and lanes_want[t][l]) then report('lanes:%s holds the empty lane %s', t, l) end
  end
  local limit = limit_of('t:' .. t)
  local runs = has_lane and not limit.paused and not (limit.max and slots_used('t:' .. t) >= limit.max)
    and may_start('walk', 'heads', t, 't:' .. t, limit)
  check_child('walk', 'heads', t, runs, best, best_tie)
  any = any or runs
end
check_heads('walk', 'heads')
local below = 0
for _, member in ipairs(members('walk')) do
  local min = pool.floors and limit_of('t:' .. id_of(member)).min
  local want = min and slots_used('t:' .. id_of(member)) < min
  local S = want and redis.call('ZSCORE', W .. 'floor', member)
  if want then below = below + 1 end
  if want and not (S and tonumber(S) == tonumber(redis.call('ZSCORE', W .. 'walk', member))) then
    report('floor does not hold %s as the walk does', member)
  end
end
if redis.call('ZCARD', W .. 'floor') ~= below then report('floor holds tenants that are not below their minimum') end
local promised = 0
for _, field in ipairs(redis.call('HKEYS', P .. 'limits')) do
  if string.match(field, '^[tl]:') and limit_of(field).promised then promised = promised + 1 end
end
if (tonumber(redis.call('HGET', P .. 'conf', 'floors') or nil) or 0) ~= promised then
  report('conf floors is not %d', promised)
end
for _, t in ipairs(pool.tiered and members('tags') or {}) do
  if redis.call('ZSCORE', W .. 'walk', t) then report('%s stands in walk and in tags', t) end
end
local counted = {}
for _, job in pairs(info) do
  if WAITS[job.state] then counted[job.t] = true end
end
local fields = redis.call('HKEYS', W .. 'policy')
for _, field in ipairs(fields) do
  local t = string.match(field, '^V:(.+)$') or string.match(field, '^b:([^|]+)|')
  if t and not counted[t] and not redis.call('ZSCORE', W .. 'tags', t) then
    report('policy keeps %s of a tenant that is gone', field)
  end
end
for t in pairs(found.ltags) do
  if not counted[t] and not redis.call('ZSCORE', W .. 'tags', t) then report('ltags:%s of a tenant that is gone', t) end
end

for _, field in ipairs(members('timers')) do
  local limit = string.match(field, '^[tl]:[^|]+|?[^|]*$') and limit_of(field)
  if not (limit and limit.rule) then report('timers holds %s, which has no dispatch rate', field) end
end

-- Wake and helper keys.
local armed = redis.call('ZSCORE', P .. 'wake', 'w') and true or false
local ready_size, walks = redis.call('ZCARD', P .. 'ready'), (any or generation.holds_jobs()) and pool_open()
local leasable = pool.scheduled and ready_size > 0 and not pool.paused or not pool.scheduled and walks
if leasable and not armed then report('something is runnable but wake is not armed') end
if pool.scheduled then
  local window = tonumber(redis.call('HGET', P .. 'marks', 'window') or nil)
  local open = walks and (not window or window > ready_size + redis.call('ZCARD', P .. 'active'))
  if (open or redis.call('XLEN', P .. 'ingress') > 0) and not redis.call('ZSCORE', P .. 'wake:leader', 'i') then
    report('the leader has work but wake:leader is not armed')
  end
elseif not pool.leftover and (ready_size > 0 or next(has_entry)) then
  report('a direct pool has forgotten ingress or ready')
end
for _, kind in ipairs({'idem', 'worker', 'done', 'served', 'stop', 'erased'}) do
  for _, key_ in pairs(found[kind]) do
    if redis.call('PTTL', key_) == -1 then report('%s never expires', string.sub(key_, #P + 1)) end
  end
end
-- What the pool served in a minute is what its tenants had.
for minute in pairs(found.served) do
  local units, jobs, size = 0, 0, 1
  local fields = redis.call('HGETALL', P .. 'served:' .. minute)
  for i = 1, #fields, 2 do
    local had = string.gsub(fields[i + 1], ';%d+|%d+|%d+|%d+$', '')
    local u, j = string.match(had, '^([^|]+)|(%-?%d+)|[^|]+|?%d*|?%-?%d*|?[^|]*|?%d*$')
    if not tonumber(u) then report('served:%s holds nonsense of %s', minute, fields[i]) end
    local sign = fields[i] == '|' and -1 or 1
    units, jobs = units + sign * (tonumber(u) or 0), jobs + sign * (tonumber(j) or 0)
    size = size + math.abs(tonumber(u) or 0)
  end
  if jobs ~= 0 or math.abs(units) > 1e-9 * size then report('served:%s differs from its tenants', minute) end
end
--- @include "audit_blocks"
for _, id in ipairs(redis.call('HKEYS', P .. 'waiters')) do
  local state = info[id] and info[id].state
  if not state or state == 'e' or state == 'd' then report('waiters keeps %s, which has ended', id) end
end

return {1, problems}
