--- @include "pick"
--- @include "ingress"
--- @include "generations"
-- Old generation → new generation, in shares (generations.lua has the rules). First jobs are chosen, reads only; then
-- they are placed in the new generation; last the old one is changed. The walk here is one of its own, because that of
-- pick.lua knows one generation in a call, the new one, and asks of a job whether it may run now: here everybody moves,
-- nothing is charged, and what is full or paused is no matter.
do -- a script has 200 local names at most
local VISIT, PAGES, FORGOTTEN, LEAST, MOST = 4, 8, 64, 16, 50

local function remember()
  local old = pool.old
  redis.call('HSET', P .. 'conf', 'old', table.concat({old.text, old.phase, old.cursor}, '|'))
end

-- A line of children (tenants, or lanes of one) in the order of their pointers: read in doubling chunks, changed in
-- memory, written by `write_line`. `order` holds {S, member, member in the store}.
local function new_line(set) return {key = W .. set, order = {}, read = 0, chunk = 8, changed = {}} end

local function insert(N, S, m, stored)
  local order = N.order
  local at = #order + 1
  while at > 1 and before(S, m, order[at - 1][1], order[at - 1][2]) do at = at - 1 end
  table.insert(order, at, {S, m, stored})
end

local function first_two(N)
  local order = N.order
  while not N.complete and (#order < 2 or before(N.bound[1], N.bound[2], order[2][1], order[2][2])) do
    local found = redis.call('ZRANGE', N.key, N.read, N.read + N.chunk - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      N.bound = {tonumber(found[i + 1]), found[i]}
      insert(N, N.bound[1], found[i], found[i])
    end
    N.read, N.complete, N.chunk = N.read + #found / 2, #found < 2 * N.chunk, N.chunk * 2
  end
  return order[1], order[2]
end

-- The first child goes to pointer (S, tie); S nil: it goes.
local function move_first(N, S, tie)
  local entry = table.remove(N.order, 1)
  local m = S and tie .. id_of(entry[2])
  N.changed[entry[3]] = S and {S, m} or false
  if S then insert(N, S, m, entry[3]) end
end

-- Behind all others, under policies of turns.
local function last_of(N)
  N.last = (N.last or tonumber(redis.call('ZRANGE', N.key, -1, -1, 'WITHSCORES')[2] or 0)) + 1
  return N.last
end

local function write_line(N)
  local add, remove = {}, {}
  for stored, place_ in pairs(N.changed) do
    if place_ then push(add, place_[1], place_[2]) end
    if not place_ or place_[2] ~= stored then push(remove, stored) end
  end
  variadic('ZADD', N.key, add)
  variadic('ZREM', N.key, remove)
end

-- A queue whose sub-lanes are paid for by the looks of `lines`.
local function old_queue(set, lines)
  local Q = new_queue(set)
  Q.opens = lines
  return Q
end

-- Takes jobs of a lane into `chosen`: at most `most`, and under an order only those before `other`, the entry of who
-- comes next. Answers the place of the lane's next job, nil = it has none. With no look left to open a sub-lane that is
-- the place of its pointer.
local function take(chosen, limit, L, most, other)
  local taken = 0
  while #chosen < limit do
    local id, r, member, Q
    if L.qc then id, r, member, Q = head_of(L.qc) end
    if not id then id, r, member, Q = head_of(L.q) end
    if not id then return nil end
    local passed = pool.ordered and other and before(other[1], other[2], r, member)
    if is_pointer(id) or taken > 0 and (passed or taken >= most) then break end
    push(chosen, {id = id, member = member, set = Q.set, t = L.t, l = L.l, ks = Q.ks})
    Q.at, taken = Q.at + 1, taken + 1
  end
  local id, r, member = head_of(L.q)
  if not id and L.qc then id, r, member = head_of(L.qc) end
  if not id then return nil end
  return r, pool.ordered and tie_of(member) or ''
end

-- The pointers of the sub-lanes that were opened go to what stands first there now, or go: who comes next must not open
-- them all again. To be called under the old rule.
local function put_pointers(lines)
  for _, inner in ipairs(lines.opened) do
    local queue, id, r, member = pool.mark .. inner.within.set, head_of(inner)
    local pointer = id and tie_of(member) .. '@' .. inner.ks
    if pointer and (pointer ~= inner.pointer or r ~= inner.pointer_r) then append(moves.add, queue, r, pointer) end
    if pointer ~= inner.pointer then append(moves.remove, queue, inner.pointer) end
    if not pointer then append(moves.remove, pool.mark .. 'sublanes', inner.set) end
  end
end

-- Jobs from the front of the old walk. True = it is empty.
local function take_from_walk(chosen, limit, lines)
  local root, tenants, visited = new_line('walk'), {}, {}
  push(lines, root)
  while #chosen < limit and lines.looks > 0 do
    lines.looks = lines.looks - 1
    local first, second = first_two(root)
    if not first then return true end
    local t = id_of(first[2])
    local T = tenants[t]
    if not T then
      T = new_line('lanes:' .. t)
      tenants[t] = T
      push(lines, T)
    end
    local lane, other = first_two(T)
    if lane then
      local l = id_of(lane[2])
      local name = t .. '|' .. l
      local L = visited[name]
      if not L then
        L = {t = t, l = l, q = old_queue('q:' .. name, lines)}
        L.qc = pool.tiered and old_queue('qc:' .. name, lines) or nil
        visited[name] = L
      end
      local bound = other or second
      if other and second and before(second[1], second[2], other[1], other[2]) then bound = second end
      local r, tie = take(chosen, limit, L, pool.ordered and limit or VISIT, bound)
      move_first(T, r and (pool.ordered and r or last_of(T)), tie)
      lane = first_two(T)
    end
    move_first(root, lane and (pool.ordered and lane[1] or last_of(root)), lane and tie_of(lane[2]))
  end
  return false
end

-- Jobs from sub-lanes that stand in no walk. True = there are none.
local function take_from_sublanes(chosen, limit, lines)
  local N = new_line('sublanes')
  push(lines, N)
  for _ = 1, FORGOTTEN do
    local first = first_two(N)
    if not first or #chosen >= limit then return not first end
    local t, l, ks = string.match(first[3], '^qc?:([^|]+)|([^|]+)|@(.+)$')
    local S = new_queue(first[3])
    S.ks = ks
    if take(chosen, limit, {t = t, l = l, q = S}, limit) then return false end
    table.remove(N.order, 1)
    N.changed[first[3]] = false
  end
  return false
end

local function to_new(job, row, run)
  local seq = tonumber(row.seq, 16)
  if run then read_history(run) end
  if row.keys and pool.blocks then waited.goes_over(job.id, row, run, job.set, pool.mirrored) end
  if not pool.mirrored then
    local r = run and old_rank(run, row) or rank(row, seq, ready_of(row))
    return to_pending(job.id, row.tenant, row.lane, row.tier, r, row.seq, row.keys)
  end
  if run then
    redis.call('HSET', P .. 'run:' .. job.id, 's', 'i')
  else
    redis.call('SETRANGE', P .. 'job:' .. job.id, 0, 'i')
  end
  to_ingress(job.id, row, seq, ready_of(row, run))
end

local function place_chosen(chosen)
  local fields, names, seen = {}, {}, {}
  for _, job in ipairs(chosen) do
    local name = job.t .. '|' .. job.l
    if not seen[job.t] then
      push(names, job.t)
      push(fields, 't:' .. job.t)
    end
    if not seen[name] then push(fields, 'l:' .. name) end
    seen[job.t], seen[name] = true, true
  end
  load_limits(fields)
  load_nodes(names)
  reach = names
  for _, job in ipairs(chosen) do
    local row, run, wrong = read_row(job.id), read_run(job.id)
    local state = run and run.s or row and row.state -- the byte of a first lease is not touched: a hash prevails
    if not row or wrong or state == 'h' or row.tenant ~= job.t or row.keys ~= job.ks then
      set_aside(job.id, true, job.t, job.ks)
    elseif state == 'p' then
      to_new(job, row, run)
    end
    remove_from(pool.old.mark .. job.set, job.member)
  end
  pool.old.moved = redis.call('HINCRBY', P .. 'conf', 'moved', #chosen)
end

-- A page of `limits`: who was paused or full stands in the old walk from here on. True = that was the last.
local function look_at_limits()
  local page = redis.call('HSCAN', P .. 'limits', pool.old.cursor, 'COUNT', 100)
  for i = 1, #page[2], 2 do
    local kind, t, l = string.match(page[2][i], '^([tl]):([^|]+)|?(.*)$')
    if kind then generation.expose(t, kind == 'l' and l or nil) end
  end
  pool.old.cursor = page[1]
  return page[1] == '0'
end

local function forget(O, tenants)
  local keys_ = {}
  for _, t in ipairs(tenants) do
    push(keys_, O .. 'lanes:' .. t, O .. 'ltags:' .. t)
    push(keys_, O .. 'heads:' .. t)
  end
  unlink(keys_)
end

-- A page of those who waited for a key. True = nobody is left.
local function forget_waiters(O)
  local digest = redis.call('ZRANGE', O .. 'waitkeys', 0, 0)[1]
  if not digest then return true end
  local outer = O .. 'blocked:' .. digest
  local class = redis.call('ZRANGE', outer, 0, 0)[1]
  if class then
    local groups, keys_ = redis.call('ZRANGE', outer .. '|' .. class, 0, FORGOTTEN - 1), {}
    for _, group in ipairs(groups) do push(keys_, outer .. '|' .. class .. '|' .. group) end
    unlink(keys_)
    variadic('ZREM', outer .. '|' .. class, groups)
    if #groups < FORGOTTEN then redis.call('ZREM', outer, class) end
  else
    redis.call('ZREM', O .. 'waitkeys', digest)
    unlink({O .. 'turns:' .. digest})
  end
  return false
end

-- A page of what no job needs any more.
local function clear_away()
  local old = pool.old
  local O = P .. old.mark
  if old.phase == 't' then
    unlink({O .. 'walk', O .. 'floor', O .. 'heads', O .. 'policy', O .. 'sublanes', O .. 'parked'})
    local tagged = redis.call('ZRANGE', O .. 'tags', 0, FORGOTTEN - 1)
    forget(O, tagged)
    variadic('ZREM', O .. 'tags', tagged)
    if #tagged < FORGOTTEN then old.phase, old.cursor = 'n', '0' end
  elseif forget_waiters(O) then
    local page, names = redis.call('ZSCAN', P .. 'tenants', old.cursor, 'COUNT', FORGOTTEN), {}
    for i = 1, #page[2], 2 do push(names, page[2][i]) end
    forget(O, names)
    old.cursor = page[1]
    if page[1] == '0' then
      redis.call('HDEL', P .. 'conf', 'old', 'moved')
      pool.old = nil
    end
  end
end

-- Moves up to `limit` jobs or passes to the next phase. Answers how many it moved, and how many of the looks at lanes
-- and into sub-lanes are left that it may spend: those where everybody was cancelled cost some, too.
local function step(limit, looks)
  local old, chosen, lines = pool.old, {}, {opened = {}, looks = looks}
  generation.turn_over()
  local empty = take_from_walk(chosen, limit, lines)
  if empty and #chosen == 0 and old.phase == 's' then empty = take_from_sublanes(chosen, limit, lines) end
  put_pointers(lines)
  generation.turn_over()
  if #chosen > 0 then
    place_chosen(chosen)
  elseif empty and old.phase == 'w' then
    old.phase, old.cursor = 'l', '0'
  elseif empty and old.phase == 'l' then
    if look_at_limits() then old.phase = 's' end
  elseif empty then
    old.phase = 't'
  end
  write_moves()
  for _, N in ipairs(lines) do write_line(N) end
  return #chosen, lines.looks
end

-- The first `limit` jobs of the old walk, reads only.
function generation.first_of_old(limit)
  local chosen = {}
  if not generation.holds_jobs() then return chosen end
  generation.turn_over()
  take_from_walk(chosen, limit, {opened = {}, looks = 2 * limit + 64})
  generation.turn_over()
  return chosen
end

-- A share of up to `limit` jobs. Answers how many, and whether more may be left. What was moved stands in the new
-- generation when this returns.
function generation.move_over(limit)
  local moved, pages, looks = 0, PAGES, 2 * limit + 64
  while pool.old and pages > 0 and looks > 0 and moved < limit do
    local old, n = pool.old, 0
    local phase, cursor = old.phase, old.cursor
    if generation.holds_jobs() then n, looks = step(limit - moved, looks) else clear_away() end
    if n == 0 then pages = pages - 1 end
    moved = moved + n
    if pool.old and (old.phase ~= phase or old.cursor ~= cursor) then remember() end
  end
  return moved, generation.holds_jobs()
end

-- The share of a call that wants `want` jobs. True = workers may call again at once for what is left.
function generation.share(want)
  if not pool.old then return false end
  local _, left = generation.move_over(math.min(MOST, math.max(LEAST, want)))
  return left and not pool.scheduled
end
end
