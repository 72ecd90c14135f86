#!lua flags=no-writes
-- oldest: which pending jobs have stood in line longest, those of ingress and ready included, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms first lane cursor looks
-- Groups: lanes(tenant lane)
-- Refusals: schema
-- Events: none
-- Where ranks go by priority, then submission, each priority of a lane has a band of them, and the head of each band
-- came first of it; where they go by something else (edf, aging) the first 64 of a lane are looked at. Looks at these
-- in: the lanes that are named; the lanes that have limits, from `cursor` of HSCAN on (what is paused or full stands
-- in no walk), then what waits for a concurrency key (`cursor` begins with p); the runnable lanes of the tenants from
-- place `first` on, those with most waiting jobs first, of that one from its place `lane` on. During a change of policy
-- in both orders. About `looks` commands. first = -1, cursor = -1: that part is done already. Answers tenant, lane, id
-- and the ms since when of up to 16 jobs, the oldest first; first, lane and cursor to go on with, -1 when done; the
-- moment. Within one call every lane has its turn; from call to call places move with each lease.
--- @include "shard"
--- @include "clock"
--- @include "generations"
--- @include "row"
local BAND, MOST, FIRST, LANES = 35184372088832, 16, 64, 100
local function is_banded() return pool.tiered or pool.policy == 'priority' end
local function is_unsorted()
  return pool.policy == 'edf' or pool.policy == 'aging' or pool.mirrored or (pool.wfq and pool.gen > 0)
end
local first, lane_from, cursor, looks = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
next_argument = 8
local heads, looked_at = {}, {}

local function keep(t, l, id, seq)
  local at = #heads + 1
  while at > 1 and heads[at - 1].seq > seq do at = at - 1 end
  if at <= MOST then
    table.insert(heads, at, {t = t, l = l, id = id, seq = seq})
    heads[MOST + 1] = nil
  end
end

-- A queue of lane l, or a sub-lane of it.
local function look_in(set, t, l)
  if looked_at[W .. set] then return end
  looked_at[W .. set] = true
  local function meet(member, seq)
    local id = id_of(member)
    if string.byte(id) == 64 then -- '@': a sub-lane
      look_in(set .. '|' .. id, t, l)
    else
      keep(t, l, id, seq)
    end
  end
  if not is_banded() then
    looks = looks - 1
    local page = redis.call('ZRANGE', W .. set, 0, is_unsorted() and FIRST - 1 or 0, 'WITHSCORES')
    for i = 1, #page, 2 do
      meet(page[i], pool.ties and tonumber(tie_of(page[i]), 16) or tonumber(page[i + 1]))
    end
    return
  end
  local from = '-inf'
  for _ = 1, 201 do
    looks = looks - 1
    local head = redis.call('ZRANGEBYSCORE', W .. set, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not head[1] then break end
    local r = tonumber(head[2])
    local band = math.floor(r / BAND)
    meet(head[1], r - band * BAND)
    from = string.format('%.0f', (band + 1) * BAND)
  end
end

-- Does the same in this generation and in the one before (generations.lua).
local function in_both(look)
  look()
  if not generation.holds_jobs() then return end
  generation.turn_over()
  look()
  generation.turn_over()
end

local function look_at_lane(t, l)
  look_in('q:' .. t .. '|' .. l, t, l)
  if has_tiers() then look_in('qc:' .. t .. '|' .. l, t, l) end
end

local function look_at(t, l)
  in_both(function() look_at_lane(t, l) end)
end

for _, row in ipairs(next_group(tonumber(ARGV[7]), 2)) do look_at(row[1], row[2]) end

-- What was dispatched first, and what came to ingress first.
if pool.scheduled or pool.leftover then
  for _, id in ipairs(redis.call('ZRANGE', P .. 'ready', 0, MOST - 1)) do
    local row = read_row(id)
    if row then keep(row.tenant, row.lane, id, tonumber(row.seq, 16)) end
  end
  for _, entry in ipairs(redis.call('XRANGE', P .. 'ingress', '-', '+', 'COUNT', FIRST)) do
    local id = string.match(entry[2][2] or '', '^([^|]+)|')
    local row, run = id and read_row(id), id and read_run(id)
    if row and (run and run.s or row.state) == 'i' and not looked_at[id] then
      looked_at[id] = true
      keep(row.tenant, row.lane, id, tonumber(row.seq, 16))
    end
  end
end

local function scan(hash, from)
  return unpack(redis.call('HSCAN', hash, from, 'COUNT', math.max(1, math.floor(looks / 8))))
end

if cursor ~= '-1' and string.sub(cursor, 1, 1) ~= 'p' then
  local next_, page = scan(P .. 'limits', cursor)
  cursor = next_ ~= '0' and next_ or pool.keyed and 'p0' or '-1'
  for i = 1, #page, 2 do
    local t, l = string.match(page[i], '^l:([^|]+)|(.+)$')
    if t then look_at(t, l) end
  end
end
local function look_at_parked(from)
  local next_, page = scan(W .. 'parked', from)
  for i = 1, #page, 2 do
    local t, l = string.match(page[i], '^qc?:([^|]+)|([^|]+)|@')
    look_in(page[i], t, l)
  end
  return next_
end
local parked_from, earlier = string.match(cursor, '^p(%d+)$'), string.match(cursor, '^po(%d+)$')
if parked_from and looks > 0 then
  local next_ = look_at_parked(parked_from)
  cursor = next_ ~= '0' and 'p' .. next_ or generation.holds_jobs() and 'po0' or '-1'
elseif earlier and not generation.holds_jobs() then
  cursor = '-1'
elseif earlier and looks > 0 then
  generation.turn_over()
  local next_ = look_at_parked(earlier)
  generation.turn_over()
  cursor = next_ ~= '0' and 'po' .. next_ or '-1'
end

while first >= 0 and looks > 0 do
  local tenants = redis.call('ZREVRANGE', P .. 'tenants', first, first + 49, 'WITHSCORES')
  for i = 1, #tenants, 2 do
    if tenants[i + 1] == '0' then
      first = -1
      break
    end
    local more = true
    while more and looks > 0 do
      looks, more = looks - 1, false
      in_both(function()
        local lanes_ = redis.call('ZRANGE', W .. 'lanes:' .. tenants[i], lane_from, lane_from + LANES - 1)
        for _, l in ipairs(lanes_) do look_at_lane(tenants[i], id_of(l)) end
        more = more or #lanes_ == LANES
      end)
      lane_from = more and lane_from + LANES or 0
    end
    if more then break end
    first = first + 1
  end
  if #tenants < 100 and looks > 0 then first = -1 end
end

-- Since when: of a job that was never leased, or kept its place through its only lease, submitted or due; of one that
-- kept its place later, the start of the lease that it lost, or earlier; else when it went back to wait.
local reply = {}
for _, h in ipairs(heads) do
  local row, run = read_row(h.id), read_run(h.id)
  if row then
    local since = row.submitted + (row.delay or 0)
    if run then
      read_history(run)
      if run.kp == row.seq then
        if run.a > 1 then since = run.st end
      else
        since = ready_of(row, run)
      end
    end
    push(reply, {h.t, h.l, h.id, string.format('%.0f', since)})
  end
end
table.sort(reply, function(a, b) return tonumber(a[4]) < tonumber(b[4]) end)
return {1, reply, first, lane_from, cursor, now}
