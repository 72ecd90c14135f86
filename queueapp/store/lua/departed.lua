#!lua flags=no-writes
-- departed: those on their way to another pool, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms most skip
-- Groups:
-- Refusals: schema
-- Events: none
-- The longest on their way first, without the first `skip`; at most `most` and about a megabyte. Answers of each its
-- id, where it goes, the number of its departure, and all that `arrive` needs there, packed; nil in place of that of
-- one that nobody can read.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "keysets"
local BYTES = 1000000

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

local function packed(id, hop)
  local text, run = redis.call('GET', P .. 'job:' .. id), read_run(id)
  local row = text and parse_row(text)
  local task = row and redis.call('HGET', P .. 'names', row.task)
  if not task or not run then return false end
  read_history(run)
  return cmsgpack.pack({
    row = row, payload = string.match(text, '\n(.*)$'), task = task, hop = hop, at = now,
    keys = spelt_keys(row.keys), attempts = run.a, errors = run.e, crashes = run.c, forgiven = run.f,
    due = tonumber(run.rd or nil) or tonumber(row.submitted) + (row.delay or 0),
    records = redis.call('LRANGE', P .. 'errors:' .. id, 0, -1), data = redis.call('HGETALL', P .. 'data:' .. id),
    checkpoint = redis.call('GET', P .. 'checkpoint:' .. id),
  })
end

local found, bytes = {}, 0
local first = tonumber(ARGV[4])
for _, id in ipairs(redis.call('ZRANGE', P .. 'moving', first, first + tonumber(ARGV[3]) - 1)) do
  if bytes > BYTES then break end
  local v = redis.call('HMGET', P .. 'run:' .. id, 'mv', 'hp')
  local hop = tonumber(v[2] or nil) or 0
  local blob = packed(id, hop)
  bytes = bytes + (blob and #blob or 0)
  push(found, {id, v[1] or '', hop, blob})
end
return {1, found}
