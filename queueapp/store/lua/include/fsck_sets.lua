-- All other keys, by kind: each member is demanded by a row, or by the key that it belongs to.
do
local CODES = {scheduled = 's', backlog = 'b', ready = 'r', active = 'a', moving = 'm', dead = 'd', ended = 'e',
  stubs = 'e', waiting = 'w'}
local EXPIRE_MS = {idem = 86400000, worker = 600000, done = 60000, served = 3600000, stop = 60000, gcra = 3600000,
  nudge = 60000, erased = 600000}
local NO_LOOK = {} -- looked at elsewhere, or not the work of a job
for name in string.gmatch('conf counts stats tasks names est wake wake:standby wake:leader workers watched leader '
  .. 'fence marks ingress entered corrections tenants limits cuts keyusers keynames outbox', '%S+') do
  NO_LOOK[name] = true
end
local BY_JOB = {job = true, run = true, result = true, errors = true, data = true, checkpoint = true,
  children = true}

local function page_of(command, key_, cursor, most, see)
  local page = redis.call(command, key_, cursor, 'COUNT', most)
  local step = command == 'SSCAN' and 1 or 2
  for i = 1, #page[2], step do see(page[2][i], page[2][i + step - 1]) end
  return page[1]
end

local function see_index(index, id)
  local row, run, state = fsck.look(id)
  local fits = state == CODES[index]
  if state == 'e' then fits = index == fsck.home_of_ended(id) end
  if fits and (row or state == 'e' or state == 'a') then return end
  local is_over = index == 'ended' or index == 'stubs' or index == 'dead' or index == 'moving'
  if is_over or fsck.is_nothing(id) or fsck.is_aside(id) or (state and not fits) then
    return fsck.wrong('member', id, index .. ' holds it wrongly', function() remove_from(index, id) end)
  end
  fsck.wrong('lost', id, index .. ' holds it, but its row cannot be read: set aside', function()
    local t, ks = row and row.tenant or run and run.t, row and row.keys or run and run.k
    redis.call('ZREM', P .. index, id)
    fsck.aside(id, index ~= 'active', t, ks)
    if index == 'active' and run and run.w and run.t then end_lease(run) end
  end)
end

local function see_slot(scope, id)
  local run = read_run(id)
  local kind, rest_ = string.match(scope, '^(%a):?(.*)$')
  local fits = run and run.t and (run.s == 'a' or run.s == 'r')
  if fits and kind == 't' then fits = run.t == rest_ and scope_of(run.t, run.l).tenant.track end
  if fits and kind == 'l' then fits = run.t .. '|' .. run.l == rest_ and scope_of(run.t, run.l).lane.track end
  if fits and kind == 'p' then fits = pool.track end
  if fits and kind == 'k' then
    fits = false
    for _, key in ipairs(run.k and keyset(run.k) or {}) do fits = fits or key.digest == rest_ end
  end
  if fits then return end
  fsck.wrong('slot', id, 'slots:' .. scope .. ' holds it, but it has no lease', function()
    redis.call('ZREM', P .. 'slots:' .. scope, id)
    slots.used[scope] = nil
    if kind == 'k' then sub.offer(rest_, 1) end
    if kind == 'l' then touch(string.match(rest_, '^([^|]+)|(.+)$')) end
    if kind == 't' then
      freed[rest_] = true
      for _, member in ipairs(redis.call('ZRANGE', W .. 'lanes:' .. rest_, 0, 63)) do touch(rest_, id_of(member)) end
      refresh_tenant(rest_, limit_of('t:' .. rest_), redis.call('EXISTS', W .. 'lanes:' .. rest_) == 1)
    end
  end)
end

local function see_turn(kind, t)
  local first = redis.call('ZRANGE', P .. kind .. ':' .. t, 0, 0, 'WITHSCORES')
  if redis.call('ZSCORE', P .. kind .. 'turns', t) == (first[2] or false) then return end
  fsck.wrong('member', t, kind .. 'turns has it at another time than its first', function()
    if first[1] then
      redis.call('ZADD', P .. kind .. 'turns', first[2], t)
    else
      redis.call('ZREM', P .. kind .. 'turns', t)
    end
  end)
end

local function see_once(id, packed)
  local _, _, state = fsck.look(id)
  if not state or state == 'e' or state == 'd' then
    return fsck.wrong('once', id, 'has ended, but holds ' .. string.gsub(packed, '\n', ', '), function()
      once.give_up({id}, {[id] = state == 'd' or nil})
    end)
  end
  for name in string.gmatch(packed, '[^\n]+') do
    local held = false
    local holders = string.sub(name, 1, 7) == 'single:' and once.holders(name)
    for _, holder in ipairs(holders or {}) do held = held or holder == id end
    if holders and not held then
      fsck.wrong('once', id, 'is not named by ' .. name, function()
        if #holders < 2 then
          redis.call('SET', P .. name, table.concat({id, unpack(holders)}, ' '))
        else
          redis.call('HDEL', P .. 'once', id)
        end
      end)
    end
  end
end

local function holds(id, name)
  local packed = redis.call('HGET', P .. 'once', id)
  return packed and string.find('\n' .. packed .. '\n', '\n' .. name .. '\n', 1, true) and true or false
end

local function look_at_single(name)
  local left, bad = {}, false
  for _, id in ipairs(once.holders(name)) do
    if holds(id, name) then push(left, id) else bad = id end
  end
  if not bad then return end
  fsck.wrong('once', bad, name .. ' names it, but it holds nothing', function()
    if #left > 0 then redis.call('SET', P .. name, table.concat(left, ' ')) else redis.call('DEL', P .. name) end
  end)
end

local function look_at_debounce(name)
  local id, ttl = redis.call('HGET', P .. name, 'job'), redis.call('PTTL', P .. name)
  local held = id and holds(id, name)
  if ttl == -1 and not held then
    fsck.wrong('expiry', name, 'never expires, but its job has ended', function()
      redis.call('PEXPIRE', P .. name, 60000)
    end)
  elseif ttl ~= -1 and held then
    fsck.wrong('expiry', name, 'expires before its job has ended', function() redis.call('PERSIST', P .. name) end)
  end
end

-- Which jobs a worker shall stop.
local function look_at_worker(worker)
  local key_, left, seen, bad = P .. 'worker:' .. worker, {}, {}, false
  for id in string.gmatch(redis.call('HGET', key_, 'stop') or '', '%S+') do
    local run = read_run(id)
    if run and run.s == 'a' and run.cx and run.w == worker and not seen[id] then push(left, id) else bad = id end
    seen[id] = true
  end
  if not bad then return end
  fsck.wrong('stop', bad, 'worker:' .. worker .. ' shall stop it wrongly', function()
    redis.call('HDEL', key_, 'stop')
    if #left > 0 then redis.call('HSET', key_, 'stop', table.concat(left, ' ')) end
  end)
end

local function see_blocks(scope, packed)
  if not string.find(packed, '^%d+|%d*|%d+$') then
    return fsck.wrong('blocks', scope, 'blocks holds nonsense of it', function()
      redis.call('HDEL', P .. 'blocks', scope)
    end)
  end
  if not string.find(scope, '^[tl]:') or not string.find(packed, '^%d+|%d') then return end
  local limit = limit_of(scope)
  if limit.rule or limit.paused or (limit.max and slots_used(scope) >= limit.max) then return end
  fsck.wrong('blocks', scope, 'blocks counts for it, but it may run', function()
    redis.call('HSET', P .. 'blocks', scope, string.match(packed, '^%d+') .. '||0')
  end)
end

local SEE = {
  expiring = {'ZSCAN', function(id)
    local row, _, state = fsck.look(id)
    if (WAITING[state] or state == 'w') and row and row.expires then return end
    fsck.wrong('member', id, 'expiring holds it, but it does not wait', function() remove_from('expiring', id) end)
  end},
  quarantine = {'SSCAN', function(id)
    fsck.wrong('quarantine', id, 'its row could not be read, so that it was set aside')
  end},
  deadgroups = {'ZSCAN', function(group, at)
    if redis.call('ZRANGE', P .. 'deadgroup:' .. group, -1, -1, 'WITHSCORES')[2] == at then return end
    fsck.wrong('group', group, 'deadgroups has it at another time than its newest', function()
      moves.groups[group] = true
    end)
  end},
  once = {'HSCAN', see_once},
  parents = {'HSCAN', fsck.see_link},
  sweeps = {'ZSCAN', fsck.see_sweep},
  blocks = {'HSCAN', see_blocks},
  blturns = {'ZSCAN', function(t) see_turn('bl', t) end},
  blcturns = {'ZSCAN', function(t) see_turn('blc', t) end},
  waiters = {'HSCAN', function(id)
    local _, _, state = fsck.look(id)
    if state and state ~= 'e' and state ~= 'd' then return end
    fsck.wrong('waiter', id, 'somebody waits for its result, but it has ended', function() answer_waiters({id}) end)
  end},
  timers = {'ZSCAN', function(field)
    if string.match(field, '^[tl]:[^|]+|?[^|]*$') and limit_of(field).rule then return end
    fsck.wrong('member', field, 'timers holds it, but it has no dispatch rate', function()
      redis.call('ZREM', P .. 'timers', field)
    end)
  end},
}
for index in pairs(CODES) do SEE[index] = {'ZSCAN', function(id) see_index(index, id) end} end

local OF = {} -- kinds with a part behind the colon
function OF.slots(scope, cursor, most, name)
  return page_of('ZSCAN', P .. name, cursor, most, function(id) see_slot(scope, id) end)
end

function OF.held(worker, cursor, most, name)
  return page_of('SSCAN', P .. name, cursor, most, function(id)
    local run = read_run(id)
    if run and run.s == 'a' and run.w == worker then return end
    fsck.wrong('held', id, name .. ' holds it, but it has no lease', function() redis.call('SREM', P .. name, id) end)
  end)
end

function OF.dead(t, cursor, most, name)
  if cursor == '0' and not redis.call('ZSCORE', P .. 'tenants', t) then
    fsck.wrong('member', t, 'has dead letters, but is missing in tenants', function() push(moves.seen, 0, t) end)
  end
  return page_of('ZSCAN', P .. name, cursor, most, function(id)
    local row, _, state = fsck.look(id)
    if state == 'd' and row and row.tenant == t then return end
    fsck.wrong('member', id, name .. ' holds it wrongly', function() remove_from(name, id) end)
  end)
end

function OF.deadgroup(group, cursor, most, name)
  if cursor == '0' and not redis.call('ZSCORE', P .. 'deadgroups', group) then
    fsck.wrong('group', group, 'is missing in deadgroups', function() moves.groups[group] = true end)
  end
  return page_of('ZSCAN', P .. name, cursor, most, function(id)
    local _, _, state = fsck.look(id)
    local own = state == 'd' and redis.call('HGET', P .. 'run:' .. id, 'g') or nil
    if own == group or (state == 'd' and not own) then return end
    fsck.wrong('member', id, name .. ' holds it wrongly', function()
      remove_from(name, id)
      moves.groups[group] = true
    end)
  end)
end

local function look_at_parked(kind, t, cursor, most, name)
  if cursor == '0' then see_turn(kind, t) end
  return page_of('ZSCAN', P .. name, cursor, most, function(id)
    local row, _, state = fsck.look(id)
    if state == 'b' and row and row.tenant == t and 'bl' .. row.tier == kind then return end
    fsck.wrong('member', id, name .. ' holds it wrongly', function() backlog.leave(id, t, string.sub(kind, 3)) end)
  end)
end

function OF.bl(t, cursor, most, name) return look_at_parked('bl', t, cursor, most, name) end
function OF.blc(t, cursor, most, name) return look_at_parked('blc', t, cursor, most, name) end
function OF.single(_, _, _, name) look_at_single(name) end
function OF.deb(_, _, _, name) look_at_debounce(name) end
function OF.flushed() end

function OF.open(parent, cursor, most, name)
  if cursor == '0' and not fsck.look_at_open(parent) then return end
  return page_of('SSCAN', P .. name, cursor, most, function(child) fsck.see_open(parent, child) end)
end

local KEYED = {blocked = true, turns = true, sublanes = true, waitkeys = true, parked = true, keysets = true,
  keynames = true}
local IN_LINE = {walk = true, floor = true, heads = true, lanes = true, q = true, qc = true, tags = true, ltags = true,
  policy = true, sublanes = true, parked = true, blocked = true, turns = true, waitkeys = true}

function fsck.look_at_key(full, cursor, most)
  local mark, name = string.match(full, '^(~?)(.*)$')
  if NO_LOOK[name] or redis.call('EXISTS', P .. full) == 0 then return nil end
  local kind, part_ = string.match(name, '^(%a+):(.+)$')
  kind = kind or name
  if BY_JOB[kind] and part_ then return nil end
  if IN_LINE[kind] and pool.old and mark == pool.old.mark then return nil end -- on its way: looked at when it is there
  if mark ~= (IN_LINE[kind] and pool.mark or '') then
    return fsck.wrong('stray', full, 'is no key of this shard: nobody reads it')
  end
  if EXPIRE_MS[kind] and part_ then
    if redis.call('PTTL', P .. name) == -1 then
      fsck.wrong('expiry', name, 'never expires', function() redis.call('PEXPIRE', P .. name, EXPIRE_MS[kind]) end)
    end
    if kind == 'worker' then look_at_worker(part_) end
    return nil
  end
  if (kind == 'q' or kind == 'qc') and part_ then
    local t, l, ks = string.match(part_, '^([^|]+)|([^|]+)|?@?(.*)$')
    return fsck.look_at_queue(name, cursor, most, kind, t, l, ks ~= '' and ks or nil)
  end
  if name == 'walk' or name == 'floor' then return fsck.look_at_walk(name, cursor, most) end
  if kind == 'lanes' and part_ then return fsck.look_at_walk(name, cursor, most, part_) end
  if kind == 'heads' or (kind == 'ltags' and part_) or name == 'tags' or name == 'policy' then
    return fsck.look_at_line(kind, part_, cursor, most)
  end
  if KEYED[kind] then return fsck.look_at_keyed(kind, name, cursor, most) end
  if part_ and OF[kind] then return OF[kind](part_, cursor, most, name) end
  if not part_ and SEE[name] then return page_of(SEE[name][1], P .. name, cursor, most, SEE[name][2]) end
  fsck.wrong('stray', full, 'is no key of this shard: nobody reads it')
end
end
