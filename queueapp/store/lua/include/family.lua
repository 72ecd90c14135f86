--- @include "place"
-- What becomes of parents when their children end (kin.lua), in every script that ends a job.
do -- a script has 200 local names at most
local LEVELS = 32

-- The public id of a job of this pool.
function family.public(id)
  local code, shard = string.match(P, ':([^:]+):(%d+)}:$')
  return code .. '.' .. shard .. '.' .. id
end

function family.is_here(id) return #id == 22 end

function family.write_out(...) redis.call('XADD', P .. 'outbox', '*', ...) end

-- A parent leaves the index where it waits.
function family.leave(id, row)
  remove_from('waiting', id)
  if row.expires then remove_from('expiring', id) end
end

-- A parent has ended for good: nobody will ask what its children told.
function family.forget(id)
  push(moves.unlink, P .. 'children:' .. id, P .. 'open:' .. id)
end

-- The error record of a parent, which names the child that it has it from.
local function record(run, child, outcome)
  local named = family.is_here(child) and family.public(child) or child
  local json = string.format('{"class":"queueapp.errors.ChildFailed","message":"Its child %s %s.","child":"%s",'
    .. '"outcome":"%s"}', named, outcome, named, outcome)
  redis.call('RPUSH', P .. 'errors:' .. run.id, string.format('child|%.0f||0|%.0f|%s', run.a, now, json))
  redis.call('LTRIM', P .. 'errors:' .. run.id, -20, -1)
end

local function unreadable(id, run)
  remove_from('waiting', id)
  remove_from('expiring', id)
  set_aside(id, false, run.t, run.k)
end

-- The parent dies of what became of a child. No worker has it, so that a scheduler tells of it (`failed`).
function family.fail(run, row, child, outcome)
  family.leave(run.id, row)
  family.write_out('k', 'failed', 'to', family.public(run.id))
  if outcome then record(run, child, outcome) end
  redis.call('HSET', P .. 'run:' .. run.id, 'by', child)
  redis.call('HDEL', P .. 'run:' .. run.id, 'fr')
  to_dead(run.id, run.t, run.n, outcome and 'child_failed' or 'incomplete')
end

-- All have ended: the parent gets a new place in line, or waits for its own time.
function family.release(run, row)
  local id, key = run.id, P .. 'run:' .. run.id
  read_history(run)
  local failed = redis.call('HGET', key, 'fr')
  if failed then
    local child, outcome = string.match(failed, '^(%S+) (%S+)$')
    record(run, child, outcome)
    redis.call('HDEL', key, 'fr')
    count('retried')
  end
  local due = row.submitted + (row.delay or 0)
  local began = run.le or due
  redis.call('HSET', key, 'e', run.e + (failed and 1 or 0), 'rd', math.max(now, due), 'le', math.min(began, now))
  remove_from('waiting', id)
  count_waiting(row.tenant, 1)
  if not run.st and due > now then
    redis.call('HSET', key, 's', 's', 'le', due)
    hash_holds_state(id)
    return to_scheduled(id, due)
  end
  run.le = began
  if not row.cost then push(reach, row.tenant) end
  place_anew(id, row, run, take_seq(1), now)
end

-- Not told before, nor anything later of this child; `entry` is the note's in the outbox of the child's pool.
local function is_news(stored, entry)
  local ms, seq = string.match(stored or '', '^%d+|%l|%l+|(%d+)%-(%d+)|')
  if not ms or entry == '' then return true end
  local then_, nth = string.match(entry, '^(%d+)%-(%d+)$')
  return tonumber(then_) > tonumber(ms) or then_ == ms and tonumber(nth) > tonumber(seq)
end

local function only_news(parent, ends)
  local names, found = {}, {}
  for i, e in ipairs(ends) do names[i] = e[1] end
  for i, stored in ipairs(redis.call('HMGET', P .. 'children:' .. parent, unpack(names))) do
    if is_news(stored, ends[i][6]) then push(found, ends[i]) end
  end
  return found
end

local function as_told(e) return e[3] .. '|' .. e[2] .. '|' .. e[4] .. '|' .. (e[6] or '') .. '|' .. (e[5] or '') end

-- Ends of children of one parent of this pool, each child once: rows {child, policy, position, outcome, result}, and of
-- other pools' the entry of the note. Answers how many are left, or nil when nobody waits for them.
function family.hear(parent, ends)
  local run = read_run(parent)
  if not run or (run.s ~= 'w' and run.s ~= 'd') then return nil end
  local open, names, entries, first = P .. 'open:' .. parent, {}, {}, {}
  if ends[1][6] then ends = only_news(parent, ends) end
  if #ends == 0 then return redis.call('SCARD', open) end
  for i, e in ipairs(ends) do names[i] = e[1] end
  local is_new = redis.call('SMISMEMBER', open, unpack(names))
  for i, e in ipairs(ends) do
    push(entries, e[1], as_told(e))
    if e[4] ~= 'completed' and is_new[i] == 1 and not first[e[2]] then first[e[2]] = e end
  end
  redis.call('SREM', open, unpack(names))
  variadic('HSET', P .. 'children:' .. parent, entries)
  local left = redis.call('SCARD', open)
  if run.s == 'd' then return left end
  local row = read_row(parent)
  if not row then
    unreadable(parent, run)
    return nil
  end
  local cause = first.f
  if not cause and first.r then
    read_history(run)
    if run.e + 1 >= row.max_attempts then
      cause = first.r
    else
      redis.call('HSETNX', P .. 'run:' .. parent, 'fr', first.r[1] .. ' ' .. first.r[4])
    end
  end
  if cause then
    family.fail(run, row, cause[1], cause[4])
  elseif left == 0 then
    family.release(run, row)
  end
  return left
end

-- Children that ended in this call, up to 1,000.
local function tell_parents(children, level)
  local of, order, unlinked = {}, {}, {}
  for i, link in ipairs(redis.call('HMGET', P .. 'parents', unpack(children))) do
    local id = children[i]
    local policy, position, parent = string.match(link or '', '^(%l)|(%d+)|(.+)$')
    local told = moves.told[id] or {'erased'}
    if policy then
      if told[1] ~= 'dead' then push(unlinked, id) end
      if not family.is_here(parent) or level > LEVELS then
        local here = family.is_here(parent)
        family.write_out('k', 'ended', 'to', here and family.public(parent) or parent,
          'id', here and id or family.public(id), 'p', policy, 'n', position, 'o', told[1], 'r', told[2] or '')
      else
        if not of[parent] then push(order, parent) end
        append(of, parent, {id, policy, position, told[1], told[2]})
      end
    end
  end
  variadic('HDEL', P .. 'parents', unlinked)
  for _, parent in ipairs(order) do family.hear(parent, of[parent]) end
end

-- Tells the parents of all children that ended in this call; by this further ones may end.
function family.settle()
  local first, level = 1, 1
  while first <= #moves.ended do
    local children, last = {}, #moves.ended
    for i = first, last do
      if family.is_member(moves.ended[i]) then push(children, moves.ended[i]) end
      if #children == 1000 or (i == last and #children > 0) then
        tell_parents(children, level)
        children = {}
      end
    end
    first, level = last + 1, level + 1
  end
end

-- One of the two sweeps of a parent is due at `moment`.
function family.sweep_at(member, moment)
  wake_if_earlier('sweeps', moment)
  redis.call('ZADD', P .. 'sweeps', moment, member)
  if not pool.sweeps then
    redis.call('HSET', P .. 'conf', 'sweeps', 1)
    pool.sweeps = true
  end
end

function family.swept(...)
  redis.call('ZREM', P .. 'sweeps', ...)
  if redis.call('EXISTS', P .. 'sweeps') == 0 then
    redis.call('HDEL', P .. 'conf', 'sweeps')
    pool.sweeps = false
  end
end

-- A row as of `hear`, of a dead child in another pool that was redriven: it is waited for again.
function family.hear_again(parent, e)
  local run = read_run(parent)
  if not run or (run.s ~= 'w' and run.s ~= 'd') or #only_news(parent, {e}) == 0 then return end
  redis.call('SADD', P .. 'open:' .. parent, e[1])
  redis.call('HSET', P .. 'children:' .. parent, e[1], as_told(e))
  return redis.call('SCARD', P .. 'open:' .. parent)
end

-- A dead child is redriven: who waits for it, or died, waits for it again.
function family.reopen(id)
  if not family.is_member(id) then return end
  local policy, position, parent =
    string.match(redis.call('HGET', P .. 'parents', id) or '', '^(%l)|(%d+)|(.+)$')
  if not parent then return end
  if not family.is_here(parent) then
    return family.write_out('k', 'ended', 'to', parent, 'id', family.public(id), 'p', policy, 'n', position,
      'o', 'reopened', 'r', '')
  end
  local run = read_run(parent)
  if not run or (run.s ~= 'w' and run.s ~= 'd') then return end
  redis.call('SADD', P .. 'open:' .. parent, id)
  redis.call('HDEL', P .. 'children:' .. parent, id)
end

-- The parent of a hold that was taken away, or to which nothing was added, may be free at once.
function family.look(parent)
  if redis.call('EXISTS', P .. 'open:' .. parent) == 1 then return end
  local run = read_run(parent)
  local row = run and run.s == 'w' and read_row(parent)
  if row then family.release(run, row) end
end
end
