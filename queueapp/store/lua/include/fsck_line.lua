-- The line: queues, and the pointers above them. In the walk stands just what may run, at its head's place.
do
local set_back = tonumber(redis.call('HGET', P .. 'marks', 'clock') or 0) > now

-- Whether `verify` would say so, too: who waits for a token stands in `timers`, or finds that it has one by now.
local function may_start(set, heads, c, field, limit)
  if not limit.rule then return true end
  local moment = rates.moment('d' .. field, limit.rule)
  local at = tonumber(redis.call('ZSCORE', P .. 'timers', field) or nil)
  local tie = pool.ties and redis.call('HGET', W .. heads, c) or ''
  local stands = redis.call('ZSCORE', W .. set, tie .. c)
  if moment > now and not (set_back and stands) then return false, not at or (at > moment and not set_back) end
  return stands and true or not (at and (at <= now or set_back))
end

-- Is child c in this line just while it is runnable, at (pointer, tie)? Answers what is wrong, or nil.
local function fault_of(set, heads, c, runnable, pointer, tie)
  local stored = pool.ties and redis.call('HGET', W .. heads, c)
  local S = tonumber(redis.call('ZSCORE', W .. set, (stored or '') .. c) or nil)
  if stored and not S then return 'its place is not known' end
  if runnable and not S then return 'may run, but is missing in ' .. set end
  if S and not runnable then return 'may not run, but stands in ' .. set end
  if S and pool.ordered and (S ~= pointer or (stored or '') ~= tie) then return 'its place is not that of its head' end
end

-- `refresh` goes by what `heads` says of the members.
local function forget_head(set, heads, c)
  local stored = pool.ties and redis.call('HGET', W .. heads, c)
  if stored and not redis.call('ZSCORE', W .. set, stored .. c) then redis.call('HDEL', W .. heads, c) end
end

local function stand_anew_tenant(t)
  refresh_tenant(t, limit_of('t:' .. t), redis.call('EXISTS', W .. 'lanes:' .. t) == 1)
end

-- Does `blocks` count while its own limit holds a scope with work back?
local function is_counted(scope)
  return string.find(redis.call('HGET', P .. 'blocks', scope) or '', '^%d+|%d')
end

local function look_at_tenant(t)
  local first = redis.call('ZRANGE', W .. 'lanes:' .. t, 0, 0, 'WITHSCORES')
  local limit = limit_of('t:' .. t)
  local runs, lost_look = first[1] and not limit.paused and not (limit.max and slots_used('t:' .. t) >= limit.max)
  if runs then runs, lost_look = may_start('walk', 'heads', t, 't:' .. t, limit) end
  local pointer, tie
  if pool.ordered and first[1] then pointer, tie = tonumber(first[2]), tie_of(first[1]) end
  local held = first[1] and (limit.paused or (limit.max and slots_used('t:' .. t) >= limit.max))
  local fault = lost_look and 'waits for a token, but timers does not know it'
    or fault_of('walk', 'heads', t, runs or false, pointer, tie)
    or held and not is_counted('t:' .. t) and 'is held back, but blocks does not count for it' or nil
  local min = pool.floors and limit.min
  local member = (pool.ties and redis.call('HGET', W .. 'heads', t) or '') .. t
  local S = redis.call('ZSCORE', W .. 'walk', member)
  local wanted = S and min and slots_used('t:' .. t) < min
  local there = pool.floors and redis.call('ZSCORE', W .. 'floor', member)
  if not fault and pool.floors and ((wanted and S or false) ~= (there or false)) then
    fault = 'does not stand in floor as it should'
  end
  if fault then
    fsck.wrong('pointer', t, fault, function()
      forget_head('walk', 'heads', t)
      if there then redis.call('ZREM', W .. 'floor', member) end
      stand_anew_tenant(t)
    end)
  end
end

local function look_at_lane(t, l)
  local field = 'l:' .. t .. '|' .. l
  local limit = limit_of(field)
  local head, tie = lane_head(t, l)
  local runs, lost_look = head and not limit.paused and not (limit.max and slots_used(field) >= limit.max)
  if runs then runs, lost_look = may_start('lanes:' .. t, 'heads:' .. t, l, field, limit) end
  local fault = lost_look and 'waits for a token, but timers does not know it'
    or fault_of('lanes:' .. t, 'heads:' .. t, l, runs or false, head, tie)
    or head and (limit.paused or (limit.max and slots_used(field) >= limit.max)) and not is_counted(field)
      and 'is held back, but blocks does not count for it' or nil
  if fault then
    fsck.wrong('pointer', t .. '|' .. l, fault, function()
      forget_head('lanes:' .. t, 'heads:' .. t, l)
      touch(t, l)
    end)
  end
end

-- Members of a queue: jobs in state pending that belong here, and pointers of sub-lanes.
function fsck.look_at_queue(name, cursor, most, kind, t, l, ks)
  if cursor == '0' then
    look_at_lane(t, l)
    look_at_tenant(t)
    if ks then fsck.look_at_sub_lane(name, kind, t, l, ks) end
  end
  local page = redis.call('ZSCAN', W .. name, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    local id = id_of(member)
    if string.byte(id) == 64 then -- a sub-lane
      local head = redis.call('ZRANGE', W .. name .. '|' .. id, 0, 0, 'WITHSCORES')
      if ks or not head[1] or tie_of(head[1]) ~= tie_of(member)
        or redis.call('HEXISTS', W .. 'parked', name .. '|' .. id) == 1 then
        fsck.wrong('pointer', name .. '|' .. id, 'a pointer to it stands where none should', function()
          redis.call('ZREM', W .. name, member)
          touch(t, l)
        end)
      end
    else
      local row, run, state = fsck.look(id)
      local set = ks and '|@' .. ks or ''
      if fsck.is_nothing(id) then
        fsck.wrong('member', id, name .. ' holds it, but there is no such job', function()
          leave_queue(name, member, ks)
          touch(t, l)
        end)
      elseif not row or not state then
        fsck.wrong('member', id, name .. ' holds it, but its row cannot be read: set aside', function()
          fsck.aside(id, true, t, ks)
          leave_queue(name, member, ks)
          touch(t, l)
        end)
      elseif state ~= 'p' or row.tenant ~= t or row.lane ~= l or (row.keys and '|@' .. row.keys or '') ~= set
        or (pool.ties and tie_of(member) ~= row.seq) then
        fsck.wrong('member', id, name .. ' holds it wrongly', function()
          leave_queue(name, member, ks)
          touch(t, l)
        end)
      end
    end
  end
  return page[1]
end

-- walk, floor, lanes:<t>: `set` names them, t is nil at the root.
function fsck.look_at_walk(set, cursor, most, t)
  local heads = t and 'heads:' .. t or 'heads'
  local page = redis.call('ZSCAN', W .. set, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    local c = id_of(member)
    if pool.ties and redis.call('HGET', W .. heads, c) ~= tie_of(member)
      or set == 'floor' and not redis.call('ZSCORE', W .. 'walk', member) then
      fsck.wrong('pointer', t and t .. '|' .. c or c, set .. ' holds it at a place that is not its own', function()
        redis.call('ZREM', W .. set, member)
        if t then touch(t, c) else stand_anew_tenant(c) end
      end)
    elseif t then
      look_at_lane(t, c)
    else
      look_at_tenant(c)
    end
  end
  return page[1]
end

local function is_gone(t)
  local n = tonumber(redis.call('ZSCORE', P .. 'tenants', t) or 0)
  return n <= 0 and not redis.call('ZSCORE', W .. 'tags', t) and redis.call('EXISTS', W .. 'lanes:' .. t) == 0
end

-- What else hangs on the line: heads, tags, policy.
function fsck.look_at_line(kind, t, cursor, most)
  local name = t and kind .. ':' .. t or kind
  if kind == 'ltags' then
    if is_gone(t) then
      fsck.wrong('leftover', name, 'is kept of a tenant that is gone', function() redis.call('UNLINK', W .. name) end)
    end
    return '0'
  end
  local page = redis.call(kind == 'tags' and 'ZSCAN' or 'HSCAN', W .. name, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local field, value = page[2][i], page[2][i + 1]
    if kind == 'heads' then
      local set = t and 'lanes:' .. t or 'walk'
      if not pool.ties or not redis.call('ZSCORE', W .. set, value .. field) then
        fsck.wrong('pointer', t and t .. '|' .. field or field, name .. ' names a member that is not there', function()
          redis.call('HDEL', W .. name, field)
          if t then touch(t, field) else stand_anew_tenant(field) end
        end)
      end
    elseif kind == 'tags' and pool.tiered and redis.call('ZSCORE', W .. 'walk', field) then
      fsck.wrong('pointer', field, 'stands in walk and in tags', function() redis.call('ZREM', W .. 'tags', field) end)
    elseif kind == 'policy' then
      local owner_ = string.match(field, '^V:(.+)$') or string.match(field, '^b:([^|]+)|')
      if owner_ and is_gone(owner_) then
        fsck.wrong('leftover', field, 'policy keeps it of a tenant that is gone', function()
          redis.call('HDEL', W .. 'policy', field)
        end)
      end
    end
  end
  return page[1]
end
end
