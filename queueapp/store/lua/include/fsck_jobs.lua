-- What a row, or a hash, demands: that its job stands where its state says, and has what it needs there.
do
local HOME = {s = 'scheduled', b = 'backlog', r = 'ready', a = 'active', m = 'moving', d = 'dead', e = 'ended',
  w = 'waiting'}
local AGAIN_MS = 30000 -- the lease of a job whose deadline was lost

local function shall_stand(id, index, at)
  if redis.call('ZSCORE', P .. index, id) then return end
  fsck.wrong('index', id, 'is missing in ' .. index, function() append(moves.add, index, at(), id) end)
end

-- Its place in line, where the row tells it.
local function to_line(id, row, run)
  if run then read_history(run) end
  if tonumber(row.seq, 16) == 0 then
    row.seq = hex(take_seq(1))
    redis.call('SETRANGE', P .. 'job:' .. id, 2, row.seq)
  end
  if pool.mirrored and pool.scheduled and not (run and old_rank(run)) then
    if run then
      redis.call('HSET', P .. 'run:' .. id, 's', 'i')
      hash_holds_state(id)
    else
      redis.call('SETRANGE', P .. 'job:' .. id, 0, 'i')
    end
    return to_ingress(id, row, tonumber(row.seq, 16), ready_of(row, run))
  end
  local set = row.keys and sub_lane(queue_of(row.tenant, row.lane, row.tier), row.keys)
  if set and redis.call('EXISTS', W .. set) == 0 then
    redis.call('HDEL', W .. 'parked', set) -- what it waits for is seen anew
    redis.call('ZREM', W .. 'sublanes', set)
  end
  local r = run and old_rank(run, row) or rank(row, tonumber(row.seq, 16), ready_of(row, run))
  to_pending(id, row.tenant, row.lane, row.tier, r, row.seq, row.keys)
end

local function stands_in_line(id, row)
  local inside = row.keys and '|@' .. row.keys or ''
  local name = row.tenant .. '|' .. row.lane .. inside
  local function stands(mark, ties)
    local member = ties and row.seq .. id or id
    for _, tier in ipairs({'q:', 'qc:'}) do
      if redis.call('ZSCORE', P .. mark .. tier .. name, member) then return true end
    end
  end
  return stands(pool.mark, pool.ties) or generation.holds_jobs() and stands(pool.old.mark, pool.old.ties)
end

-- The slots of a leased or dispatched job.
local function look_at_slots(id, run)
  local scopes, filling = {}, redis.call('HEXISTS', P .. 'conf', 'fill') == 1
  local scope = scope_of(run.t, run.l)
  if pool.track and not filling then push(scopes, 'p') end
  if scope.tenant.track and not scope.tenant.fill then push(scopes, 't:' .. run.t) end
  if scope.lane.track and not scope.lane.fill then push(scopes, 'l:' .. scope.name) end
  for _, key in ipairs(run.k and keyset(run.k) or {}) do push(scopes, 'k:' .. key.digest) end
  for _, name in ipairs(scopes) do
    if not redis.call('ZSCORE', P .. 'slots:' .. name, id) then
      fsck.wrong('slot', id, 'is missing in slots:' .. name, function()
        redis.call('ZADD', P .. 'slots:' .. name, run.st or now, id)
        slots.used[name] = nil
        touch(run.t, run.l)
      end)
    end
  end
end

local function look_at_lease(id, row, run)
  if run.w and redis.call('SISMEMBER', P .. 'held:' .. run.w, id) == 0 then
    fsck.wrong('held', id, 'is missing in held:' .. run.w, function() redis.call('SADD', P .. 'held:' .. run.w, id) end)
  end
  if row and run.k ~= row.keys then
    fsck.wrong('keys', id, 'runs with another key set than its row has', function()
      if row.keys then
        redis.call('HSET', P .. 'run:' .. id, 'k', row.keys)
      else
        redis.call('HDEL', P .. 'run:' .. id, 'k')
      end
    end)
  end
end

local function ended_at(id) return tonumber(redis.call('HGET', P .. 'run:' .. id, 'te') or nil) or now end

local function look_at_dead(id, row, run)
  local at = ended_at(id)
  local group = redis.call('HGET', P .. 'run:' .. id, 'g')
  shall_stand(id, 'dead:' .. row.tenant, function() return at end)
  if not group then
    fsck.wrong('group', id, 'is a dead letter without a group', function()
      group = group_of('', row.task, redis.call('HGET', P .. 'run:' .. id, 'o') or '')
      redis.call('HSET', P .. 'run:' .. id, 'g', group)
      append(moves.add, 'deadgroup:' .. group, at, id)
      moves.groups[group] = true
    end)
  elseif not redis.call('ZSCORE', P .. 'deadgroup:' .. group, id) then
    fsck.wrong('index', id, 'is missing in deadgroup:' .. group, function()
      append(moves.add, 'deadgroup:' .. group, at, id)
      moves.groups[group] = true
    end)
  end
end

-- A job that has not ended and whose row is gone or unreadable: there is nothing that could be run.
local function look_at_lost(id, row, run, state)
  if state == 'a' then
    return fsck.wrong('lost', id, 'runs, but its row cannot be read: its attempt may still end; it cannot be run again')
  end
  fsck.wrong('lost', id, 'its row or its hash cannot be read: set aside', function()
    local t, ks = row and row.tenant or run and run.t, row and row.keys or run and run.k
    for _, index in pairs(HOME) do
      if index ~= 'active' then redis.call('ZREM', P .. index, id) end
    end
    if t then
      redis.call('ZREM', P .. 'dead:' .. t, id)
      for _, kind in ipairs({'bl', 'blc'}) do redis.call('ZREM', P .. kind .. ':' .. t, id) end
    end
    local waits = state and WAITING[state] or not state and row and row.state ~= 'd' or false
    fsck.aside(id, waits, t, ks)
  end)
end

local function look_at_waiting(id, row, run, state)
  if state == 'p' and (tonumber(row.seq, 16) == 0 or not stands_in_line(id, row)) then
    fsck.wrong('index', id, 'is missing in its line', function() to_line(id, row, run) end)
  elseif state == 's' then
    shall_stand(id, 'scheduled', function() return ready_of(row, run) end)
  elseif state == 'b' then
    local line = backlog.line(row.tenant, row.tier)
    local due, own = redis.call('ZSCORE', P .. 'backlog', id), redis.call('ZSCORE', P .. line, id)
    if not due or due ~= own then
      fsck.wrong('index', id, 'is missing in backlog or ' .. line, function()
        backlog.enter(id, row.tenant, row.tier, tonumber(due or own or now))
      end)
    end
  elseif state == 'r' then
    shall_stand(id, 'ready', function() return redis.call('HINCRBY', P .. 'marks', 'dispatched', 1) end)
    look_at_slots(id, run)
  end
  if row.expires and not redis.call('ZSCORE', P .. 'expiring', id) then
    fsck.wrong('index', id, 'is missing in expiring', function() to_expiring(row, id) end)
  end
end

function fsck.look_at_job(id)
  if fsck.is_aside(id) then return end
  local row, run, state = fsck.look(id)
  if fsck.is_nothing(id) then
    local beside = {P .. 'result:' .. id, P .. 'errors:' .. id, P .. 'data:' .. id, P .. 'checkpoint:' .. id,
      P .. 'children:' .. id}
    if redis.call('EXISTS', unpack(beside)) > 0 then
      fsck.wrong('leftover', id, 'is gone; something of it was kept', function()
        unlink(beside)
      end)
    end
    return
  end
  if not state or (state ~= 'e' and not row) then return look_at_lost(id, row, run, state) end
  if row and run and (run.t ~= row.tenant or run.l ~= row.lane) then
    fsck.wrong('state', id, 'its row and its hash name other lanes', function()
      redis.call('HSET', P .. 'run:' .. id, 't', row.tenant, 'l', row.lane)
    end)
    run.t, run.l = row.tenant, row.lane
  end
  if row and run and row.state ~= 'h' and state ~= 'a' and state ~= 'r' and state ~= 'e' then
    fsck.wrong('state', id, 'its row and its hash differ', function() hash_holds_state(id) end)
  end
  if state == 'i' then fsck.tell_fact('ingress', id, row.seq) end
  if WAITING[state] then
    look_at_waiting(id, row, run, state)
  elseif state == 'a' then
    shall_stand(id, 'active', function() return now + AGAIN_MS end)
    look_at_slots(id, run)
    look_at_lease(id, row, run)
  elseif state == 'd' then
    shall_stand(id, 'dead', function() return ended_at(id) end)
    look_at_dead(id, row, run)
  elseif state == 'w' then
    shall_stand(id, 'waiting', function() return now end)
    fsck.look_at_parent(id, row, run)
  elseif state == 'm' then
    shall_stand(id, 'moving', function() return now end)
  elseif state == 'e' then
    shall_stand(id, fsck.home_of_ended(id), function() return ended_at(id) end)
    if redis.call('EXISTS', P .. 'job:' .. id, P .. 'checkpoint:' .. id) > 0 then
      fsck.wrong('leftover', id, 'has ended; its row or its checkpoint was kept', function()
        push(moves.unlink, P .. 'job:' .. id, P .. 'checkpoint:' .. id)
      end)
    end
  else
    fsck.wrong('state', id, 'is in a state that there is not: ' .. state)
  end
  if run and run.cx and state ~= 'a' and state ~= 'm' and state ~= 'e' then
    fsck.wrong('state', id, 'waits, but was told to stop', function() redis.call('HDEL', P .. 'run:' .. id, 'cx') end)
  end
  local ks = row and row.keys
  if ks and state ~= 'e' and #keyset(ks) == 0 then
    fsck.wrong('keys', id, 'its key set ' .. ks .. ' is unknown: nothing limits it any more')
  end
  local v = run and redis.call('HMGET', P .. 'run:' .. id, 'le', 'rd') or {}
  fsck.tell_fact('job', id, row and row.tenant or run.t or '', WAITING[state] and 1 or 0, state ~= 'e' and ks or '',
    string.format('%s|%s|%s|%s|%s', state == 'e' and state or '', run and run.a or 0, v[1] or '', v[2] or '',
      row and row.submitted or ''))
end
end
