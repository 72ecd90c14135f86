#!lua
-- arrive: new → pending, scheduled, ingress, ended (cancelled), from another pool
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id packed)
-- Refusals: schema
-- Events: stats arrived; wake w, t; wake:leader i
-- The second of three steps (depart.lua). The job comes with its own moment of submission, budgets, errors, what it
-- waited and what its runs saved, and takes a new place in line; what was parked or scheduled waits for its moment, and
-- what was cancelled on its way ends. No front door: an operator wants it here. A repeat finds it; what an earlier
-- departure from here left goes. Everything is read and
-- checked before the first write. Answers per job: arrived, exists (it came by this or a later departure), late (packed
-- so long ago that it may have come and gone), broken (nobody can read it). The last two must be packed anew.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "due"
--- @include "transit"
--- @include "tiers"
tick()
next_argument = 4
local words, fresh, numbers, coming = {}, {}, {}, {}
local function whole_pack(text)
  local well, p = pcall(cmsgpack.unpack, text)
  if not well or type(p) ~= 'table' or type(p.row) ~= 'table' or type(p.task) ~= 'string' then return nil end
  return type(p.payload) == 'string' and tonumber(p.hop) and tonumber(p.at) and tonumber(p.due) and p or nil
end
for i, j in ipairs(next_group(tonumber(ARGV[3]), 2)) do
  local id, p = j[1], whole_pack(j[2])
  local come, left
  if p then come, left = has_come(id, tonumber(p.hop)) end
  if not p then
    words[i] = 'broken'
  elseif coming[id] or come then
    words[i] = 'exists'
  elseif now - p.at > LATE_MS then
    words[i] = 'late'
  else
    words[i], coming[id] = 'arrived', true
    push(fresh, {id = id, packed = p, left = left})
  end
end

local function number_of(task)
  if not numbers[task] then
    local number = redis.call('HGET', P .. 'tasks', task)
    if not number then
      number = redis.call('HLEN', P .. 'tasks') + 1
      redis.call('HSET', P .. 'tasks', task, number)
      redis.call('HSET', P .. 'names', number, task)
    end
    numbers[task] = tostring(number)
  end
  return numbers[task]
end

-- What its runs left behind.
local function unpack_history(id, p)
  if #p.along > 0 then redis.call('HSET', P .. 'run:' .. id, unpack(p.along)) end
  if #p.records > 0 then redis.call('RPUSH', P .. 'errors:' .. id, unpack(p.records)) end
  if #p.data > 0 then redis.call('HSET', P .. 'data:' .. id, unpack(p.data)) end
  if p.checkpoint and not p.cancelled then redis.call('SET', P .. 'checkpoint:' .. id, p.checkpoint) end
end

-- Its row with the numbers of this shard, and the text of it.
local function row_here(p, seq)
  local row, whole = p.row, function(n) return string.format('%.0f', n) end
  row.task, row.stood, row.seq = number_of(p.task), nil, hex(seq)
  row.keys = p.keys ~= '' and not p.cancelled and new_keys(p.keys) or nil
  row.submitted = tonumber(row.submitted)
  local text = build_row('h', seq, {
    due = row.delay and row.submitted + row.delay, tenant = row.tenant, lane = row.lane, priority = whole(row.priority),
    tier = row.tier == 'c' and 'continue' or '', cost = row.cost and string.format('%.17g', row.cost) or '0',
    max_attempts = whole(row.max_attempts), max_crashes = whole(row.max_crashes), expires = row.expires,
    deadline_ms = row.deadline and whole(row.deadline) or '0', keys = row.keys, fingerprint = row.fingerprint,
    payload = p.payload,
  }, row.submitted, row.task)
  row.submitted = whole(row.submitted)
  return row, text
end

local function come_to_wait(id, p, row, waits, place)
  if row.tier == 'c' then begin_tiers() end
  if not row.cost then push(reach, row.tenant) end
  to_expiring(row, id)
  if waits then
    to_scheduled(id, p.due)
  else
    place_anew(id, row, read_history(read_run(id)), place, now, p.spent)
  end
  count_waiting(row.tenant, 1)
end

local seq = #fresh > 0 and take_seq(#fresh)
if #fresh > 0 then stamp_schema() end
for i, job in ipairs(fresh) do
  local id, p = job.id, job.packed
  local waits = p.due > now
  local row, text = row_here(p, waits and 0 or seq + i - 1)
  if job.left then
    redis.call('DEL', P .. 'run:' .. id)
    remove_from('stubs', id)
  end
  redis.call('HSET', P .. 'run:' .. id, 's', waits and 's' or 'p', 'a', p.attempts, 'e', p.errors, 'c', p.crashes,
    'f', p.forgiven, 'hp', p.hop, 'rd', p.due, unpack(identity(row)))
  unpack_history(id, p)
  if p.cancelled then
    to_ended(id, 'cancelled')
  else
    redis.call('SET', P .. 'job:' .. id, text)
    come_to_wait(id, p, row, waits, seq + i - 1)
  end
  count('arrived')
end
if #fresh > 0 then close() end
return {1, words}
