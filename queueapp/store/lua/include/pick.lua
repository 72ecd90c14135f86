--- @include "keysets"
-- The pointer walk: which jobs run next. Read phase only: nodes change in memory, nothing is written until the caller
-- commits what was found (lease.lua, dispatching.lua), so that `peek` is the same code without the commit. tenant =
-- first of the walk, lane = first of the tenant's lanes, job = first of the lane's queue; continuations are preferred
-- 10 : 1 inside one lane only.
local MAX_REPLY_BYTES = 1048576
local is_cut, is_pointer, must_drain, new_queue, head_of, new_found, pick, pick_lanes
do -- a script has 200 local names at most
local lanes = {}
local MAX_ASIDE = 16 -- sub-lanes that step aside in one call

function new_queue(set)
  return {set = set, at = 1, members = {}, ids = {}, ranks = {}, rows = {}, chunk = 2}
end

local function lane_of(t, l)
  local name = t .. '|' .. l
  local L = lanes[name]
  if not L then
    L = {t = t, l = l, name = name, q = new_queue('q:' .. name)}
    if has_tiers() then
      L.qc = new_queue('qc:' .. name)
      L.boost = tonumber(redis.call('HGET', W .. 'policy', 'b:' .. name) or 0)
    end
    lanes[name] = L
  end
  return L
end

local cuts

-- Is all that waited of the tenant of this row being cancelled, and did it stand in line by then (cut.lua)?
function is_cut(row)
  if not cuts then
    cuts = {}
    local stored = redis.call('HGETALL', P .. 'cuts')
    for i = 1, #stored, 2 do
      local seq, ends = string.match(stored[i + 1], '^(%d+) (%d+)$')
      local t = string.match(stored[i], '^[^|]+')
      if seq and t and tonumber(ends) > now then cuts[t] = math.max(cuts[t] or 0, tonumber(seq)) end
    end
  end
  return cuts[row.tenant] and tonumber(row.seq, 16) <= cuts[row.tenant]
end

function is_pointer(id) return id and string.byte(id) == 64 end -- '@': a sub-lane (keys.lua)

-- (id, rank, member) of the first job that was not taken yet, and the queue that holds it: a sub-lane, or Q. Chunks
-- double, so that a short visit reads little. A sub-lane that comes to the front is opened: from then on its head
-- stands for its pointer, until it is used up. `Q.opens` (moving.lua): {looks, opened} that pays for each one opened;
-- when nothing is left of it, the pointer itself is answered.
local place_open
function head_of(Q)
  if Q.at > #Q.ids and not Q.complete then
    local found, sets = redis.call('ZRANGE', W .. Q.set, #Q.ids, #Q.ids + Q.chunk - 1, 'WITHSCORES'), {}
    for i = 1, #found, 2 do
      local n, id = #Q.ids + 1, id_of(found[i])
      Q.members[n], Q.ids[n], Q.ranks[n] = found[i], id, tonumber(found[i + 1])
      if is_pointer(id) then push(sets, string.sub(id, 2)) end
    end
    Q.complete = #found < Q.chunk * 2
    Q.chunk = math.min(Q.chunk * 2, 100)
    load_keysets(sets)
  end
  local id, r, member = Q.ids[Q.at], Q.ranks[Q.at], Q.members[Q.at]
  local first = Q.open and Q.open[1]
  if first and first.at ~= first.placed then -- its head was taken; that of the others stands
    table.remove(Q.open, 1)
    place_open(Q, first)
    first = Q.open[1]
  end
  if first and (not id or before(first.r, first.member, r, member)) then
    return first.ids[first.at], first.r, first.member, first
  end
  if is_pointer(id) and not (Q.opens and Q.opens.looks < 1) then
    local inner = new_queue(Q.set .. '|' .. id)
    inner.ks, inner.within = string.sub(id, 2), Q
    if Q.opens then
      inner.pointer, inner.pointer_r = member, r
      push(Q.opens.opened, inner)
      Q.opens.looks = Q.opens.looks - 1
    end
    Q.at, Q.open = Q.at + 1, Q.open or {}
    place_open(Q, inner)
    return head_of(Q)
  end
  return id, r, member, Q
end

-- Puts an open sub-lane of Q among the others, by its head; one that is used up is open no more.
function place_open(Q, inner)
  local id, r, member = head_of(inner)
  if not id then return end
  inner.r, inner.member, inner.placed = r, member, inner.at
  local open = Q.open
  local low, high = 1, #open + 1
  while low < high do
    local mid = math.floor((low + high) / 2)
    if before(open[mid].r, open[mid].member, r, member) then low = mid + 1 else high = mid end
  end
  table.insert(open, low, inner)
end

local function choose(L)
  if not L.qc then return L.q, false end
  local fresh, continued = head_of(L.q), head_of(L.qc)
  if continued and (not fresh or L.boost < 10) then
    return L.qc, fresh and true or false
  end
  return L.q, false
end

-- What `lane_head` will answer once the jobs found are gone.
local function rest_of(L)
  local _, r, member = head_of(L.q)
  if pool.ordered then return r or false, r and tie_of(member) end
  return (r or (L.qc and head_of(L.qc))) and true or false
end

local ahead -- of how many further tenants of the walk the head is read along; nil: they are not what comes next

-- The heads that come next in the walk, at most `most`, as far as their rows were not read.
local function next_heads(Q, most)
  local heads, order = {}, node('').order
  for i = 1, math.min(ahead or 0, most, #order) do
    local T = node(order[i][2])
    if not T.order then load_order(T, 17) end
    local _, l = least(T)
    local other = l and choose(lane_of(T.name, l))
    if other then
      local id, _, _, holder = head_of(other)
      if id and holder ~= Q and holder.rows[holder.at] == nil then push(heads, holder) end
    end
  end
  return heads
end

-- Text of the head's row. Rows are read ahead in doubling steps while they are small: further ones of its queue, and
-- the heads of at most `most` tenants whose turn is next.
local function row_text(Q, most)
  local text = Q.rows[Q.at]
  if text == nil then
    local n, heads = Q.step or 1, next_heads(Q, most)
    local last, names = math.min(Q.at + n - 1, #Q.ids), {}
    for i = Q.at, last do push(names, P .. 'job:' .. Q.ids[i]) end -- that of a pointer is no key
    for _, other in ipairs(heads) do push(names, P .. 'job:' .. other.ids[other.at]) end
    local texts, bytes = redis.call('MGET', unpack(names)), 0
    for i = 1, #names do
      local other = heads[i - (last - Q.at + 1)]
      if other then other.rows[other.at] = texts[i] else Q.rows[Q.at + i - 1] = texts[i] end
      bytes = bytes + (texts[i] and #texts[i] or 0)
    end
    local small = bytes < 4096 * #names
    Q.step = small and math.min(n * 2, 64) or 1
    ahead = ahead and (small and math.min(ahead * 2, 64) or 1)
    text = Q.rows[Q.at]
  end
  return text
end

-- Reads weights, limits and V of the tenants that this call can reach, in two commands.
local function load_reach(root)
  local fields, names, seen = {}, {}, {}
  for _, order in ipairs({root.order, floor.order}) do
    for _, entry in ipairs(order) do
      local t = entry[2]
      if not seen[t] then
        seen[t] = true
        push(names, t)
        push(fields, 't:' .. t, 'l:' .. t .. '|main')
      end
    end
  end
  if #names > 0 then
    load_limits(fields)
    load_nodes(names)
    reach = names
  end
end

-- Shall a busy worker stop in front of a suspect that has been passed over for `passed` ms, so that it becomes empty?
-- For the first quarter of 5..10 s, of 10..20 s, of 20..40 s and so on: in the end that is longer than any running
-- job, and no pool stands still for more than a quarter of the time.
function must_drain(passed)
  if passed < 5000 then return false end
  local start = 5000
  while start * 2 <= passed do start = start * 2 end
  return passed < start * 1.25
end

-- A sub-lane with a full key steps aside: for this call in memory, in the store when it ends (keys.lua).
local function step_aside(found, L, Q)
  local open = Q.within.open
  for i = 1, #open do
    if open[i] == Q then
      table.remove(open, i)
      break
    end
  end
  push(found.aside, Q.set)
  refresh(L.t, L.l, rest_of(L))
end

-- The lane is passed over for the rest of this call. Where pointers are heads, the tenant's turn is that of its hidden
-- head.
local function pass_over(t, l)
  hide(node(t), l)
  if pool.ordered then hide(node(''), t) end
end

-- Looks at the head of lane l of tenant t, and takes it, drops it or passes it over. True = the call stops here.
local function visit(found, t, l, alone, for_minimum, left)
  local L = lane_of(t, l)
  local chosen, boosted = choose(L)
  local id, r, member, Q = head_of(chosen)
  if not id then return true end -- a pointer to nothing: `verify` reports it
  local scope = scope_of(t, l)
  if rates.write and not rates.admit(t, scope) then -- the clock was set back since it came into the walk
    refresh(t, l, rest_of(L))
    return false
  end
  if Q.ks and full_key(Q.ks) then
    if #found.aside < MAX_ASIDE then
      step_aside(found, L, Q)
    else
      found.more = true
      pass_over(t, l)
    end
    return false
  end
  local text = row_text(Q, left or 0)
  local row = text and parse_row(text)
  local late = row and row.expires and row.expires <= now
  local over = late or row and pool.cuts and is_cut(row)
  local run, wrong
  if row and (row.state == 'h' or over) then run, wrong = read_run(id) end
  if run then read_history(run) end
  local suspect = run and run.c >= SUSPECT
  if not row or wrong or (row.state == 'h' and not run) or row.tenant ~= t or row.keys ~= Q.ks then
    push(found.broken, {id = id, t = t, l = l, set = Q.set, member = member, ks = Q.ks})
  elseif over then
    push(found.expired, {id = id, row = row, outcome = not late and 'cancelled'})
  elseif suspect and alone ~= 'all' and not (alone and #found.jobs == 0) then
    if run.sp and must_drain(now - run.sp) then return true end
    if not run.sp then push(found.passed, id) end
    found.held_up = true
    pass_over(t, l)
    return false
  else
    local ch, fs = charge(t, l, row, r, for_minimum)
    take_slots(t, l, id)
    if scope.tenant.rule then rates.take('dt:' .. t, scope.tenant.rule) end
    if scope.lane.rule then rates.take('dl:' .. scope.name, scope.lane.rule) end
    if Q.ks then take_key_slots(Q.ks, id, t, ch) end
    if L.qc then
      L.boost = boosted and L.boost + 1 or 0
      boosts[L.name] = L.boost > 0 and L.boost
    end
    push(found.jobs, {
      id = id, row = row, run = run, r = r, set = Q.set, member = member, text = text, ch = ch, fs = fs,
    })
    found.bytes = found.bytes + #text
    found.whole = suspect and alone ~= 'all'
  end
  Q.at = Q.at + 1
  refresh(t, l, rest_of(L))
  return found.whole
end

-- What a pick finds: jobs, and others that it met on the way; the caller commits it (commit.lua).
function new_found()
  return {jobs = {}, expired = {}, broken = {}, passed = {}, aside = {}, back = {}, bytes = 0, whole = false}
end

-- Picks up to `want` jobs, into `found` where the caller has some already. `alone` = the caller holds nothing, so that
-- it may take a suspect (a job that twice crashed its worker): a suspect is leased by itself, else passed over.
-- 'all': a suspect is dispatched like any other, the lease looks to it.
function pick(want, alone, found)
  local root = node('')
  found = found or new_found()
  load_order(root, want + 1)
  floor.begin(root, want + 1)
  load_reach(root)
  ahead = 1
  local looks, stop = 2 * want + 80, false
  while #found.jobs < want and found.bytes < MAX_REPLY_BYTES and looks > 0 and pool_open() and not stop do
    looks = looks - 1
    local first = floor.first(root)
    local _, t = least(root)
    if not t then break end
    t = first or t
    local T = node(t)
    if not T.order then load_order(T, 17) end
    local _, l = least(T)
    if l then
      stop = visit(found, t, l, alone, first ~= nil, want - #found.jobs)
    else
      hide(root, t) -- all its lanes are passed over
    end
  end
  return found
end

-- Takes the first job of lane l of tenant t that may run. Answers taken, empty or blocked.
local function take_first(found, t, l, for_minimum)
  local before_, aside = #found.jobs, #found.aside
  local root, T = node(''), node(t)
  for _ = 1, 80 do -- expired and broken jobs on the way, sub-lanes that step aside
    if not score(root, t) or not score(T, l) or root.skip[t] or T.skip[l] then break end
    local stop = visit(found, t, l, 'all', for_minimum)
    if #found.jobs > before_ then return 'taken' end
    if stop then break end
  end
  return (head_of(lane_of(t, l).q) or #found.aside > aside) and 'blocked' or 'empty'
end

-- A leader's own choice: the first job of each of these {tenant, lane}, at most `want`. Guaranteed minima go first, as
-- in `pick`. Answers what it found, with `taken`: {tenant, lane, outcome, for a minimum, number of the job} in order.
function pick_lanes(picks, want)
  local root, found, fields = node(''), new_found(), {}
  found.taken = {}
  load_order(root, want + 1)
  floor.begin(root, want + 1)
  load_reach(root)
  for _, p in ipairs(picks) do push(fields, 't:' .. p[1], 'l:' .. p[1] .. '|' .. p[2]) end
  if #fields > 0 then load_limits(fields) end
  local function goes_on()
    return #found.jobs < want and found.bytes < MAX_REPLY_BYTES and pool_open()
  end
  for _, p in ipairs(picks) do
    local looks = want + 80
    while looks > 0 and goes_on() and floor.first(root) do
      local first = floor.first(root)
      local T = node(first)
      if not T.order then load_order(T, 17) end
      local _, l = least(T)
      looks = looks - 1
      if not l then
        hide(root, first) -- all its lanes are passed over
      elseif take_first(found, first, l, true) == 'taken' then
        push(found.taken, {first, l, 'taken', true, #found.jobs})
      end
    end
    local outcome = goes_on() and take_first(found, p[1], p[2], false) or 'unasked'
    push(found.taken, {p[1], p[2], outcome, false, #found.jobs})
  end
  return found
end
end
