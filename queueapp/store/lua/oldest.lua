#!lua flags=no-writes
-- oldest: which pending jobs have stood in line longest, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms first cursor looks
-- Groups: lanes(tenant lane)
-- Refusals: schema
-- Events: none
-- Inside a lane each priority has a band of ranks, and the head of each band came first of it. Looks at these heads
-- in: the lanes that are named; the lanes that have limits, from `cursor` of HSCAN on (what is paused or full stands
-- in no walk); the runnable lanes of the tenants from place `first` on, those with most waiting jobs first. About
-- `looks` commands. first = -1, cursor = -1: that part is done already. Answers tenant, lane, id and the ms since
-- when of up to 16 jobs, the oldest first; first and cursor to go on with, -1 when done; the moment.
--- @include "shard"
--- @include "clock"
--- @include "row"
local BAND, MOST = 35184372088832, 16
local first, cursor, looks = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
next_argument = 7
local heads, looked_at = {}, {}

local function keep(t, l, id, seq)
  local at = #heads + 1
  while at > 1 and heads[at - 1].seq > seq do at = at - 1 end
  if at <= MOST then
    table.insert(heads, at, {t = t, l = l, id = id, seq = seq})
    heads[MOST + 1] = nil
  end
end

local function look_at(t, l)
  local name = t .. '|' .. l
  if looked_at[name] then return end
  looked_at[name] = true
  for _, tier in ipairs(pool.tiers and not pool.ordered and {'q:', 'qc:'} or {'q:'}) do
    local from = '-inf'
    for _ = 1, 201 do
      looks = looks - 1
      local head = redis.call('ZRANGEBYSCORE', P .. tier .. name, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if not head[1] then break end
      local r = tonumber(head[2])
      local band = pool.policy == 'tiered' and math.floor(r / BAND) or 0
      keep(t, l, head[1], r - band * BAND)
      if pool.policy ~= 'tiered' then break end
      from = string.format('%.0f', (band + 1) * BAND)
    end
  end
end

for _, row in ipairs(next_group(tonumber(ARGV[6]), 2)) do look_at(row[1], row[2]) end

if cursor ~= '-1' then
  local page = redis.call('HSCAN', P .. 'limits', cursor, 'COUNT', math.max(1, math.floor(looks / 8)))
  cursor = page[1] == '0' and '-1' or page[1]
  for i = 1, #page[2], 2 do
    local t, l = string.match(page[2][i], '^l:([^|]+)|(.+)$')
    if t then look_at(t, l) end
  end
end

while first >= 0 and looks > 0 do
  local tenants = redis.call('ZREVRANGE', P .. 'tenants', first, first + 49, 'WITHSCORES')
  for i = 1, #tenants, 2 do
    if tenants[i + 1] == '0' then
      first = -1
      break
    end
    if looks <= 0 then break end
    looks, first = looks - 1, first + 1
    for _, l in ipairs(redis.call('ZRANGE', P .. 'lanes:' .. tenants[i], 0, 99)) do look_at(tenants[i], l) end
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
      if run.a > 0 and run.r == h.seq then
        if run.a > 1 then since = run.st end
      else
        since = tonumber(run.rd or nil) or since
      end
    end
    push(reply, {h.t, h.l, h.id, string.format('%.0f', since)})
  end
end
table.sort(reply, function(a, b) return tonumber(a[4]) < tonumber(b[4]) end)
return {1, reply, first, cursor, now}
