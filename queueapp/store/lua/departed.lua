#!lua flags=no-writes
-- departed: those on their way to another pool, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms most
-- Groups:
-- Refusals: schema
-- Events: none
-- The longest on their way first, at most `most` and about a megabyte. Answers of each its id, where it goes, and all
-- that `arrive` needs there, packed; nil in place of that of one that nobody can read.
--- @include "shard"
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

local function packed(id)
  local text, run = redis.call('GET', P .. 'job:' .. id), read_run(id)
  local row = text and parse_row(text)
  if not row or not run then return false end
  read_history(run)
  return cmsgpack.pack({
    row = row, payload = string.match(text, '\n(.*)$'), task = redis.call('HGET', P .. 'names', row.task),
    keys = spelt_keys(row.keys), attempts = run.a, errors = run.e, crashes = run.c, forgiven = run.f,
    due = tonumber(run.rd or nil) or tonumber(row.submitted) + (row.delay or 0),
    records = redis.call('LRANGE', P .. 'errors:' .. id, 0, -1), data = redis.call('HGETALL', P .. 'data:' .. id),
    checkpoint = redis.call('GET', P .. 'checkpoint:' .. id),
  })
end

local found, bytes = {}, 0
for _, id in ipairs(redis.call('ZRANGE', P .. 'moving', 0, tonumber(ARGV[3]) - 1)) do
  if bytes > BYTES then break end
  local blob = packed(id)
  bytes = bytes + (blob and #blob or 0)
  push(found, {id, redis.call('HGET', P .. 'run:' .. id, 'mv') or '', blob})
end
return {1, found}
