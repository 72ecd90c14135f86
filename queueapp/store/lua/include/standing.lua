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
  local head = redis.call('ZRANGE', P .. queue, 0, 0)[1]
  head = head and id_of(head)
  if is_pointer(head) then return suspect_of(queue .. '|' .. head, id) end
  local crashes = head and head ~= id and redis.pcall('HGET', P .. 'run:' .. head, 'c')
  return type(crashes) == 'string' and (tonumber(crashes) or 0) >= 2 and head
end

-- How many members of a queue stand before (rank, member), and how many commands it took to find out.
local function up_to(queue, r, member)
  local low, took = redis.call('ZCOUNT', P .. queue, '-inf', '(' .. r), 1
  local high = pool.ties and low + redis.call('ZCOUNT', P .. queue, r, r) or low
  while low < high do
    local mid = math.floor((low + high) / 2)
    took = took + 1
    local other = redis.call('ZRANGE', P .. queue, mid, mid)[1]
    if less(tie_of(other), tie_of(member)) then low = mid + 1 else high = mid end
  end
  return low, took
end

-- The same for the jobs of a lane's queue, those of its sub-lanes included but for parked ones. A pointer stands at the
-- place of the head of its sub-lane, so that it is the one that is counted already.
local function before_in(queue, r, member)
  local total, took = up_to(queue, r, member)
  local sets = pool.keyed
    and redis.call('ZRANGEBYLEX', P .. 'sublanes', '[' .. queue .. '|@', '(' .. queue .. '|A', 'LIMIT', 0, 100) or {}
  if #sets == 0 then return total, took end
  for i, digest in ipairs(redis.call('HMGET', P .. 'parked', unpack(sets))) do
    if not digest then
      local number, more = up_to(sets[i], r, member)
      total, took = total + math.max(0, number - 1), took + more
    end
  end
  return total, took + 2
end

-- Under an order: how many jobs that may run now stand before (rank, member); 1 = that is all, 0 = `looks` ended.
local function counted_before(r, member, looks)
  local total = 0
  local tenants = redis.call('ZRANGEBYSCORE', P .. 'walk', '-inf', r, 'LIMIT', 0, looks)
  for _, tenant in ipairs(tenants) do
    local t = id_of(tenant)
    local found = redis.call('ZRANGEBYSCORE', P .. 'lanes:' .. t, '-inf', r, 'LIMIT', 0, math.max(1, looks))
    looks = looks - 1
    for _, lane in ipairs(found) do
      if looks <= 0 then return total, 0 end
      local number, took = before_in('q:' .. t .. '|' .. id_of(lane), r, member)
      total, looks = total + number, looks - took
    end
  end
  return total, 1
end

-- Under turns: follows the walk, as if the pool itself had no ceiling. nil: it ends without the job, or at a row that
-- is not ours and stops every pick.
local function walked_before(id, want)
  pool.paused, pool.max = false, nil
  local whole, found = pcall(pick, want, false)
  if not whole then return nil end
  for i, job in ipairs(found.jobs) do
    if job.id == id then return i - 1, 1 end
  end
  if #found.jobs >= want or found.bytes >= MAX_REPLY_BYTES then return #found.jobs, 0 end
  return nil
end

local function tell_place(id, row, suspect, walked, looks)
  local t, l, member = row.tenant, row.lane, member_of(id, row.seq)
  local queue, other = 'q:' .. t .. '|' .. l, 'qc:' .. t .. '|' .. l
  local within = row.keys and '|@' .. row.keys or '' -- jobs with keys stand in a sub-lane (keys.lua)
  local r = redis.call('ZSCORE', P .. queue .. within, member)
  if not r then
    queue, other = other, queue
    r = redis.call('ZSCORE', P .. queue .. within, member)
  end
  if not r then return end -- `verify` reports it
  local parked = row.keys and redis.call('HGET', P .. 'parked', queue .. within)
  tell('parked', parked)
  if parked then
    tell('place', redis.call('ZRANK', P .. queue .. within, member))
  else
    local place_ = before_in(queue, r, member)
    tell('place', place_)
  end
  tell('continues', string.sub(queue, 1, 3) == 'qc:' and 1)
  tell('others', redis.call('ZCARD', P .. other))
  local first = pool.ordered and redis.call('ZRANGE', P .. 'lanes:' .. t, 0, 0)[1]
  tell('head_suspect', suspect_of(queue, id) or suspect_of(queue .. within, id)
    or (first and suspect_of('q:' .. t .. '|' .. id_of(first), id)))
  local turn = not pool.ordered and redis.call('ZRANK', P .. 'walk', t)
  if turn then
    tell('turn', turn)
    tell('turns', redis.call('ZCARD', P .. 'walk'))
  end
  tell('lane_turns', redis.call('ZCARD', P .. 'lanes:' .. t))
  if suspect or parked or not (score(node(''), t) and score(node(t), l)) then return end
  local ahead, exact
  if pool.ordered then
    ahead, exact = counted_before(r, member, looks)
  else
    ahead, exact = walked_before(id, walked)
    if exact == 0 then ahead = math.max(ahead, turn) end -- each of those before it starts one at least
  end
  tell('ahead', ahead)
  tell('ahead_exact', ahead and exact)
end
