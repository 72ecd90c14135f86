#!lua flags=no-writes
-- explain: what one job waits for, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms id live_ms most walked looks
-- Groups:
-- Refusals: schema
-- Events: none
-- All of one moment, as names and values in turn (queueapp/store/wait_facts.py): header, hash and last error of the
-- job; of one that waits for children, how many, and up to `most` of them; what is paused or full above it, and up to
-- `most` jobs that hold its place; where it stands in its queue and its tenant in the walk; how many pending jobs start
-- before it: the walk is followed for `walked` jobs, and where it does not come to it under a policy that has an order
-- they are counted, in about `looks` commands; workers that called within `live_ms`; how many jobs started in this
-- minute and the last.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "refresh"
--- @include "charge"
--- @include "pick"
--- @include "standing"
local id = ARGV[3]
local FIELDS = {'s', 'n', 't', 'l', 'o', 'g', 'a', 'e', 'c', 'rd', 's1', 'st', 'te', 'w', 'sm', 'uk', 'sp', 'b', 'cx',
  'by'}

local text = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 399)
local v = redis.pcall('HMGET', P .. 'run:' .. id, unpack(FIELDS))
if text == '' and not v.err and not v[1] and redis.call('SISMEMBER', P .. 'quarantine', id) == 0 then
  return {1, unpack(facts)}
end
local row, run, pairs_ = type(text) == 'string' and parse_row(text), {}, {}
for i, field in ipairs(FIELDS) do
  if v[i] then
    run[field] = v[i]
    push(pairs_, field, v[i])
  end
end
local s = run.s or (row and row.state)
local t, l, task = row and row.tenant or run.t, row and row.lane or run.l or 'main', row and row.task or run.n
if v.err or s == 'h' or not s or not t or not task or (s ~= 'e' and not row)
  or redis.call('SISMEMBER', P .. 'quarantine', id) == 1 then
  tell('broken', 1)
  return {1, unpack(facts)}
end
tell('row', row and string.match(text, '^[^\n]*\n')) -- never the payload
tell('run', pairs_)
tell('number', task)
tell('task', redis.call('HGET', P .. 'names', task) or 'unknown task ' .. task)
local error_ = redis.pcall('LINDEX', P .. 'errors:' .. id, -1)
tell('error', type(error_) == 'string' and error_)
tell('policy', pool.policy)
tell('ordered', pool.ordered and 1 or 0)

if s == 'p' or s == 's' or s == 'b' or s == 'i' or s == 'r' then
  local scope, most = scope_of(t, l), tonumber(ARGV[5])
  tell_scope('pool', pool, 'p', 0)
  tell_scope('tenant', scope.tenant, 't:' .. t, most)
  tell_scope('lane', scope.lane, 'l:' .. scope.name, most)
  tell_workers(tonumber(ARGV[4]))
  tell('due', redis.call('ZSCORE', P .. 'scheduled', id))
  tell('unknown_since', run.uk)
  tell('passed', run.sp)
  local waiting_ = tonumber(redis.call('HGET', P .. 'counts', 'w') or 0)
  tell('pending', math.max(0, waiting_ - redis.call('ZCARD', P .. 'scheduled') - redis.call('ZCARD', P .. 'backlog')))
  if s == 'b' then tell_rates(row) end
  tell_pace(t)
  if row.keys then tell_keys(row.keys, most) end
  if s == 'p' or s == 'i' then tell_tokens(row) end
  tell_leader(id)
  if s == 'p' then tell_place(id, row, (tonumber(run.c or 0) or 0) >= SUSPECT, tonumber(ARGV[6]), tonumber(ARGV[7])) end
elseif s == 'w' then
  local open = P .. 'open:' .. id
  local held = redis.call('SISMEMBER', open, '+')
  tell('children_open', redis.call('SCARD', open) - held)
  tell('children_ended', redis.call('HLEN', P .. 'children:' .. id))
  tell('children_more', held == 1 and 1)
  local some = {}
  for _, child in ipairs(redis.call('SRANDMEMBER', open, tonumber(ARGV[5]))) do
    if child ~= '+' then push(some, child) end
  end
  tell('children', some)
elseif s == 'a' then
  tell('lease_until', redis.call('ZSCORE', P .. 'active', id))
  tell('heartbeat', run.w and redis.call('ZSCORE', P .. 'workers', run.w))
  tell('begun', run.b == '1' and 1 or 0)
  local learnt = pool.unit == 'ms' and redis.call('HEXISTS', P .. 'est', task) == 1
  tell('usual', learnt and math.floor(estimate(task, t)))
end
return {1, unpack(facts)}
