--- @include "generations"
-- Where a job stands and what stands above it, for `explain`; reads only. `tell` collects names and values.
local facts = {'now', now}

local function tell(name, value)
  if value ~= nil and value ~= false then push(facts, name, value) end
end

-- What is configured for a scope and, when it is full, who holds its slots, longest first.
local function tell_scope(what, limit, field, most)
  local used = limit.max and slots_used(field) or 0
  local full = most > 0 and limit.max and used >= limit.max
  local holders = full and redis.call('ZRANGE', P .. 'slots:' .. field, 0, most - 1) or {}
  tell(what, {limit.paused and 1 or 0, limit.max or '', used, holders})
end

-- Workers that are alive; how much they can run is told only when each of them said so.
local function tell_workers(live_ms)
  local since = now - live_ms
  local live = redis.call('ZREVRANGEBYSCORE', P .. 'workers', '+inf', since, 'LIMIT', 0, 50)
  local total, held, all = 0, 0, #live < 50
  for _, worker in ipairs(live) do
    local slots_ = redis.pcall('HGET', P .. 'worker:' .. worker, 'slots')
    slots_ = type(slots_) == 'string' and tonumber(slots_)
    if slots_ then total = total + slots_ else all = false end
    held = held + redis.call('SCARD', P .. 'held:' .. worker)
  end
  tell('workers', redis.call('ZCOUNT', P .. 'workers', since, '+inf'))
  tell('slots', all and total)
  tell('held', held)
end

-- Under scheduled dispatch: whether somebody leads, how many jobs are before the leader's next look, how many it has
-- chosen, and this one's place among those; how many it may have chosen at once, as it last said. Where Lua does not
-- know the policy, the order in which it chooses is not to be seen here.
local function tell_leader(id)
  if not pool.scheduled then return end
  tell('scheduled', pool.mirrored and 2 or 1)
  tell('led', tonumber(redis.call('HGET', P .. 'leader', 'until') or 0) > now and 1)
  tell('ingress', redis.call('XLEN', P .. 'ingress'))
  tell('chosen', redis.call('ZCARD', P .. 'ready') + redis.call('ZCARD', P .. 'active'))
  tell('ready_place', redis.call('ZRANK', P .. 'ready', id))
  tell('most_chosen', redis.call('HGET', P .. 'marks', 'window'))
end

-- How many jobs of the pool, and of the tenant, started in this minute and the last; nothing where no time went by yet.
local function tell_pace(t)
  local minute, window = math.floor(now / 60000), now % 60000
  local function started(back)
    local stored = redis.call('HMGET', string.format('%sserved:%.0f', P, minute - back), '|', t)
    local jobs = function(packed) return tonumber(string.match(packed or '', '^[^|]*|(%-?%d+)') or 0) end
    return jobs(stored[1]), jobs(stored[2]), stored[1]
  end
  local a, own_a = started(0)
  local b, own_b, any = started(1)
  if any then window = window + 60000 end
  if window < 5000 then return end
  tell('started', a + b)
  tell('tenant_started', own_a + own_b)
  tell('window', window)
end

-- The rates that a parked job had to conform to: `tenant`, `lane` or the digest of a key, and the rate (front.lua).
local function tell_rates(row)
  local names, fields, told = {'tenant', 'lane'}, {'ft:' .. row.tenant, 'fl:' .. row.tenant .. '|' .. row.lane}, {}
  for _, key in ipairs(row.keys and keyset(row.keys) or {}) do
    push(names, key.digest)
    push(fields, 'fk:' .. key.pattern)
  end
  for i, packed in ipairs(redis.call('HMGET', P .. 'limits', unpack(fields))) do
    if packed then push(told, {names[i], packed}) end
  end
  tell('rates', told)
end

-- The dispatch rates of a job that let it not start now: `tenant`, `lane` or the digest of a key, the rate as in
-- `limits`, and when there is a token.
local function tell_tokens(row)
  local scope, told = scope_of(row.tenant, row.lane), {}
  local function tell_one(name, scope_, rule)
    if not rule or rates.free(scope_, rule) >= 1 then return end
    push(told, {name, string.format('%.0f,%.0f,%.0f', rule.rate, rule.period, rule.burst), rates.moment(scope_, rule)})
  end
  local keys = row.keys and keyset(row.keys) or {}
  for _, key in ipairs(keys) do -- all of them first, so that they are read at once
    local _, rule = limit_of_key(key)
    if rule then rates.want('dk:' .. key.digest .. '|' .. key.pattern, rule) end
  end
  tell_one('tenant', 'dt:' .. row.tenant, scope.tenant.rule)
  tell_one('lane', 'dl:' .. scope.name, scope.lane.rule)
  for _, key in ipairs(keys) do
    local _, rule = limit_of_key(key)
    tell_one(key.digest, 'dk:' .. key.digest .. '|' .. key.pattern, rule)
  end
  if #told > 0 then tell('tokens', told) end
end

-- The concurrency keys of a job, each with the limit in force ('' = none) and, when it is full, some who hold its
-- slots. Whether the sub-lane in which it stands is parked is told with its place.
local function tell_keys(ks, most)
  local told = {}
  for i, key in ipairs(keyset(ks)) do
    local limit, used, holders = limit_of_key(key), slots_used('k:' .. key.digest), {}
    for _, holder in ipairs(used >= limit and redis.call('ZRANGE', P .. 'slots:k:' .. key.digest, 0, most - 1) or {}) do
      local tenant = redis.pcall('HGET', P .. 'run:' .. holder, 't')
      if type(tenant) == 'string' then push(holders, holder, tenant) end
    end
    local text = redis.call('HGET', P .. 'keynames', key.digest) or ''
    told[i] = {key.digest, text, limit < math.huge and limit or '', used, holders}
  end
  tell('keys', told)
end

-- A suspect at the head of this queue, which holds up what stands behind it.
local function suspect_of(queue, id)
  local head = redis.call('ZRANGE', W .. queue, 0, 0)[1]
  head = head and id_of(head)
  if is_pointer(head) then return suspect_of(queue .. '|' .. head, id) end
  local crashes = head and head ~= id and redis.pcall('HGET', P .. 'run:' .. head, 'c')
  return type(crashes) == 'string' and (tonumber(crashes) or 0) >= SUSPECT and head
end

-- How many members of a queue stand before (rank, member), and how many commands it took to find out.
local function up_to(queue, r, member)
  local low, took = redis.call('ZCOUNT', W .. queue, '-inf', '(' .. r), 1
  local high = pool.ties and low + redis.call('ZCOUNT', W .. queue, r, r) or low
  while low < high do
    local mid = math.floor((low + high) / 2)
    took = took + 1
    local other = redis.call('ZRANGE', W .. queue, mid, mid)[1]
    if less(tie_of(other), tie_of(member)) then low = mid + 1 else high = mid end
  end
  return low, took
end

local SUB_LANES = 100 -- of a lane, that are looked at one by one

-- How many jobs of a lane stand before it, those of its sub-lanes included but for parked ones, and whether that is
-- all. A pointer stands at the place of the head of its sub-lane, so that it is the one that is counted already.
local function place_in(queue, r, member)
  local total = up_to(queue, r, member)
  local sets = pool.keyed
    and redis.call('ZRANGEBYLEX', W .. 'sublanes', '[' .. queue .. '|@', '(' .. queue .. '|A', 'LIMIT', 0, SUB_LANES)
  if not sets or #sets == 0 then return total, true end
  for i, digest in ipairs(redis.call('HMGET', W .. 'parked', unpack(sets))) do
    if not digest then total = total + math.max(0, up_to(sets[i], r, member) - 1) end
  end
  return total, #sets < SUB_LANES
end

-- How many jobs without keys stand before it in a queue, at least: those with keys may step aside, all of them. And how
-- many commands it took, and whether there are none with keys.
local function plain_before(queue, r, member)
  local total, took = up_to(queue, r, member)
  if total == 0 or not pool.keyed then return total, took, true end
  local sets = redis.call('ZLEXCOUNT', W .. 'sublanes', '[' .. queue .. '|@', '(' .. queue .. '|A')
  return math.max(0, total - sets), took + 1, sets == 0
end

-- How many of so many jobs the ceiling and the dispatch rate of a tenant or lane let start before it: what is free now,
-- but all of those that share them with it (`own`). And whether they change nothing.
local function let_through(number, field, own)
  local limit, wanted = limit_of(field), number + (own and 1 or 0)
  local free = limit.max and wanted > 0 and math.max(0, limit.max - slots_used(field)) or wanted
  if limit.rule and wanted > 0 then free = math.min(free, rates.free('d' .. field, limit.rule)) end
  if free >= wanted then return number, true end
  return own and number or free, false
end

-- Under an order: how many jobs start before (rank, member) of lane `own_l` of tenant `own_t`, in about `looks`
-- commands. 1 = just so many, 0 = at least: the looks ended; a ceiling, a key or a minimum changes the order.
local function counted_before(own_t, own_l, r, member, looks)
  local total, exact = 0, not (pool.floors and redis.call('EXISTS', W .. 'floor') == 1)
  local alone = limit_of('t:' .. own_t).min -- its minimum may put it before all others
  local tenants = alone and {member_of(own_t, tie_of(member))}
    or redis.call('ZRANGEBYSCORE', W .. 'walk', '-inf', r, 'LIMIT', 0, looks)
  for _, tenant in ipairs(tenants) do
    local t, here = id_of(tenant), 0
    local lanes_ = redis.call('ZRANGEBYSCORE', W .. 'lanes:' .. t, '-inf', r, 'LIMIT', 0, math.max(1, looks))
    local fields = {'t:' .. t}
    for i, lane in ipairs(lanes_) do fields[i + 1] = 'l:' .. t .. '|' .. id_of(lane) end
    load_limits(fields)
    looks = looks - 2
    for i, lane in ipairs(lanes_) do
      if looks <= 0 then break end
      local number, took, plain = plain_before('q:' .. t .. '|' .. id_of(lane), r, member)
      local through, open = let_through(number, fields[i + 1], t == own_t and id_of(lane) == own_l)
      here, looks, exact = here + through, looks - took, exact and plain and open
    end
    local through, open = let_through(here, fields[1], t == own_t)
    total, exact = total + through, exact and open
    if looks <= 0 then return total, 0 end
  end
  return total, exact and not alone and 1 or 0
end

-- Follows the walk for `want` jobs, as if the pool itself had no ceiling. nil: it ends without the job, or at a row
-- that is not ours and stops every pick. 0: what was passed over on the way may start before it, too.
local function walked_before(id, t, want)
  pool.paused, pool.max = false, nil
  local whole, found = pcall(pick, want, false)
  slots.used = {} -- back to what is stored
  if rates.write then rates.open() end
  if not whole then return nil end
  local passed = found.more or found.held_up
  for i, job in ipairs(found.jobs) do
    if job.id == id then return i - 1, passed and 0 or 1 end
  end
  if #found.jobs < want and found.bytes < MAX_REPLY_BYTES then return nil end
  if pool.ordered or pool.keyed or passed or limit_of('t:' .. t).min then return #found.jobs, 0 end
  -- Each tenant whose turn is before its own starts one at least.
  return math.max(#found.jobs, redis.call('ZRANK', W .. 'walk', t) or 0), 0
end

-- It stands in the order of an earlier policy (generations.lua): of which one, how many left it, how many there were.
local function tell_old_place(id, row)
  local moved, total = pool.old.moved, pool.old.total
  generation.turn_over()
  tell('old_policy', pool.policy)
  local queue = 'q:' .. row.tenant .. '|' .. row.lane
  if row.tier == 'c' and pool.tiered then queue = 'qc' .. string.sub(queue, 2) end
  tell('place', not row.keys and redis.call('ZRANK', W .. queue, member_of(id, row.seq)))
  tell('moved', math.min(moved, total))
  tell('moving', total)
  generation.turn_over()
end

local function tell_place(id, row, suspect, walked, looks)
  local t, l, member = row.tenant, row.lane, member_of(id, row.seq)
  local queue, other = 'q:' .. t .. '|' .. l, 'qc:' .. t .. '|' .. l
  local within = row.keys and '|@' .. row.keys or '' -- jobs with keys stand in a sub-lane (keys.lua)
  local r = redis.call('ZSCORE', W .. queue .. within, member)
  if not r then
    queue, other = other, queue
    r = redis.call('ZSCORE', W .. queue .. within, member)
  end
  if not r then return generation.holds_jobs() and tell_old_place(id, row) end -- else `verify` reports it
  local parked = row.keys and redis.call('HGET', W .. 'parked', queue .. within)
  tell('parked', parked)
  if parked then
    tell('place', redis.call('ZRANK', W .. queue .. within, member))
  else
    local place_, whole = place_in(queue, r, member)
    tell('place', place_)
    tell('place_at_least', not whole and 1)
  end
  tell('continues', string.sub(queue, 1, 3) == 'qc:' and 1)
  tell('others', redis.call('ZCARD', W .. other))
  local first = pool.ordered and redis.call('ZRANGE', W .. 'lanes:' .. t, 0, 0)[1]
  tell('head_suspect', suspect_of(queue, id) or suspect_of(queue .. within, id)
    or (first and suspect_of('q:' .. t .. '|' .. id_of(first), id)))
  local turn = not pool.ordered and redis.call('ZRANK', W .. 'walk', t)
  if turn then
    tell('turn', turn)
    tell('turns', redis.call('ZCARD', W .. 'walk'))
  end
  tell('lane_turns', redis.call('ZCARD', W .. 'lanes:' .. t))
  if suspect or parked or not (score(node(''), t) and score(node(t), l)) then return end
  local ahead, exact = walked_before(id, t, walked)
  if pool.ordered and exact ~= 1 then
    local counted, all = counted_before(t, l, r, member, looks)
    ahead, exact = math.max(ahead or 0, counted), all
  end
  if generation.holds_jobs() then exact = 0 end -- what comes over may stand before it
  tell('ahead', ahead)
  tell('ahead_exact', ahead and exact)
end
