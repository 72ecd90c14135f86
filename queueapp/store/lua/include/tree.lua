--- @include "newcomers"
--- @include "front"
-- Jobs that come as a tree, all of them or none (kin.lua).
-- A row of `nodes`: as of `enqueue`, without idempotency; then parent ('' = it has none; by public id where another
-- pool has it), policy, position among its siblings, and waits ('' = it has no children, w = those of this call, + = a
-- hold: more come with later calls). A row of `away`: a child in another pool, by public id, with what makes it there.
local tree = {}
do -- a script has 200 local names at most
local HOLD, HOLD_MS = '+', 600000 -- so long the rest of a tree is waited for

local function job_of(n)
  return {
    id = n[1], task = n[2], tenant = n[3], lane = n[4], priority = n[5], tier = n[6], cost = n[7], due_ms = n[8],
    delay_ms = n[9], expires_after_ms = n[10], max_attempts = n[11], max_crashes = n[12], deadline_ms = n[13],
    keys = n[14], front = n[15], fingerprint = n[16], payload = n[17], parent = n[18] ~= '' and n[18] or nil,
    policy = n[19], position = n[20], waits = n[21] ~= '' or nil, hold = n[21] == HOLD,
  }
end

-- jobs and by_id: those of this call; away: children in other pools; outer: parents in this pool that are there
-- already, by id their hashes (false: there is none).
function tree.read(nodes, away)
  local found = {jobs = {}, by_id = {}, away = {}, outer = {}}
  for i, n in ipairs(nodes) do
    found.jobs[i] = job_of(n)
    found.by_id[n[1]] = found.jobs[i]
  end
  for i, a in ipairs(away) do
    found.away[i] = {id = a[1], parent = a[2], policy = a[3], position = a[4], tenant = a[5], blob = a[6]}
  end
  for _, list in ipairs({found.jobs, found.away}) do
    for _, j in ipairs(list) do
      local parent = j.parent
      if parent and family.is_here(parent) and not found.by_id[parent] and found.outer[parent] == nil then
        found.outer[parent] = read_run(parent) or false
      end
    end
  end
  return found
end

-- Was this call made before? nil = no; conflict: by another tree.
function tree.known(found)
  local keys = {}
  for _, j in ipairs(found.jobs) do push(keys, P .. 'job:' .. j.id, P .. 'run:' .. j.id) end
  if #keys > 0 and redis.call('EXISTS', unpack(keys)) > 0 then
    for _, j in ipairs(found.jobs) do
      local row = read_row(j.id)
      if row and row.fingerprint ~= j.fingerprint then return 'conflict', j.id end
    end
    return 'enqueued'
  end
  for _, a in ipairs(found.away) do
    local there = redis.call('SISMEMBER', P .. 'open:' .. a.parent, a.id) == 1
    if there or redis.call('HEXISTS', P .. 'children:' .. a.parent, a.id) == 1 then return 'enqueued' end
  end
end

-- The first job that the front door refuses, so that none is taken; or nil. `admitted`: the tree was accepted before,
-- so that what comes above a rate waits for its moment, and nobody asks for room.
function tree.refused(found, admitted)
  for _, j in ipairs(found.jobs) do
    local due = tonumber(j.delay_ms) > 0 and now + tonumber(j.delay_ms) or tonumber(j.due_ms)
    j.due = due > now and due or nil
    if admitted then j.front, j.admitted = 'p', true end
  end
  found.front = (pool.front or pool.room) and open_front()
  if not found.front then return nil end
  found.front.load(found.jobs)
  for _, j in ipairs(found.jobs) do
    found.front.judge(j)
    if j.outcome then return j end
    if j.waits and j.parked then j.parked = nil end -- its moment stands in its row
  end
end

-- Leaves out what hangs on a parent that does not wait any more: it failed while the rest of its tree was on its way.
function tree.prune(found)
  local function stays(j)
    local parent = j.parent
    if not parent or not family.is_here(parent) then return true end
    if found.by_id[parent] then return not found.by_id[parent].dropped end
    return found.outer[parent] and found.outer[parent].s == 'w'
  end
  for _, kind in ipairs({'jobs', 'away'}) do
    local kept = {}
    for _, j in ipairs(found[kind]) do
      if stays(j) then push(kept, j) else j.dropped = true end
    end
    found[kind] = kept
  end
end

-- `parent` waits for more than it has.
function tree.hold(parent)
  redis.call('SADD', P .. 'open:' .. parent, HOLD)
  family.sweep_at('h:' .. parent, now + HOLD_MS)
end

-- Writes all of it.
function tree.write(found)
  if #found.jobs > 0 then write_newcomers(found.jobs) end
  local links, open = {}, {}
  for _, j in ipairs(found.jobs) do
    if j.parent then push(links, j.id, j.policy .. '|' .. j.position .. '|' .. j.parent) end
    if j.parent and family.is_here(j.parent) then append(open, j.parent, j.id) end
    if j.hold then tree.hold(j.id) end
  end
  for _, a in ipairs(found.away) do
    append(open, a.parent, a.id)
    family.write_out('k', 'made', 'to', a.id, 't', a.tenant, 'b', a.blob)
  end
  variadic('HSET', P .. 'parents', links)
  for parent, ids in pairs(open) do variadic('SADD', P .. 'open:' .. parent, ids) end
  if found.front then found.front.write(found.jobs) end
end

-- These parents have all of their children.
function tree.fill(parents)
  for _, parent in ipairs(parents) do
    if redis.call('SREM', P .. 'open:' .. parent, HOLD) == 1 then
      family.swept('h:' .. parent)
      family.look(parent)
    end
  end
end
end
