#!lua flags=no-writes
-- departed: those on their way to another pool, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms most score id
-- Groups: jobs(id)
-- Refusals: schema
-- Events: none
-- Those of `jobs`; without any a page of all, the longest on their way first, behind (score, id), from the beginning
-- when id is ''. At most `most`, and about a megabyte. Answers of each its id, where it goes, the number of its
-- departure, whether it was cancelled since, whether it was asked back (1: a pack from before may still arrive, 2: none
-- can), and all that `arrive` needs there, packed; nil in place of that of one that was asked back, and of one that
-- nobody can read. Then the place of the last one, '' = there are no more.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "keysets"
--- @include "position"
--- @include "transit"
next_argument = 7
local asked = next_group(tonumber(ARGV[6]), 1)
local BYTES = 1000000
-- What its runs left in its hash beside its budgets: what it waited, and what people see.
local ALONG = {'st', 's1', 'le', 'wa', 'wb', 'wl', 'ws', 'ed', 'uk'}

-- The key set as `enqueue` takes it; '' of a job without concurrency keys.
local function spelt_keys(ks)
  if not ks then return '' end
  local lines = {ks}
  for _, key in ipairs(keyset(ks)) do
    local text = redis.call('HGET', P .. 'keynames', key.digest) or ''
    push(lines, string.format('%s %.0f %s %s', key.digest, key.limit, key.pattern, text))
  end
  return table.concat(lines, '\n')
end

local function packed(id, hop, cancelled)
  local text, run = redis.call('GET', P .. 'job:' .. id), read_run(id)
  local row = text and parse_row(text, true)
  local task = row and redis.call('HGET', P .. 'names', row.task)
  if not task or not run then return false end
  read_history(run)
  local along = {}
  for i, value in ipairs(redis.call('HMGET', P .. 'run:' .. id, unpack(ALONG))) do
    if value then push(along, ALONG[i], value) end
  end
  return cmsgpack.pack({
    row = row, payload = string.match(text, '\n(.*)$'), task = task, hop = hop, at = now, cancelled = cancelled,
    keys = spelt_keys(row.keys), attempts = run.a, errors = run.e, crashes = run.c, forgiven = run.f,
    due = tonumber(run.rd or nil) or tonumber(row.submitted) + (row.delay or 0), spent = run.us, along = along,
    records = redis.call('LRANGE', P .. 'errors:' .. id, 0, -1), data = redis.call('HGETALL', P .. 'data:' .. id),
    checkpoint = redis.call('GET', P .. 'checkpoint:' .. id),
  })
end

local found, bytes, last = {}, 0, {'', ''}
local function add(id, named)
  local v = redis.call('HMGET', P .. 'run:' .. id, 's', 'mv', 'hp', 'cx', 'bk')
  if v[1] ~= 'm' and (named or v[1]) then return end
  local hop, back = tonumber(v[3] or nil) or 0, 0
  if v[5] then back = now - tonumber(v[5]) > RIPE_MS and 2 or 1 end
  local blob = back == 0 and packed(id, hop, v[4] and true or false)
  bytes = bytes + (blob and #blob or 0)
  push(found, {id, v[2] or '', hop, v[4] and 1 or 0, back, blob})
end

for _, j in ipairs(asked) do
  if bytes <= BYTES then add(j[1], true) end
end
if #asked == 0 then
  local most, from = tonumber(ARGV[3]), 0
  if ARGV[5] ~= '' then from = position_behind(P .. 'moving', false, ARGV[4], ARGV[5]) end
  local page = redis.call('ZRANGE', P .. 'moving', from, from + most - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if bytes > BYTES then break end
    add(page[i])
    last = {page[i + 1], page[i], i}
  end
  if last[3] == #page - 1 and #page < 2 * most then last = {'', ''} end
end
return {1, found, last[1], last[2]}
