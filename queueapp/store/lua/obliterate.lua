#!lua flags=allow-oom
-- obliterate: every job of the shard, in whatever state, and all that was kept of them → gone, in bounded shares
--
-- KEYS: prefix
-- ARGV: schema clock_ms token force cursor limit
-- Groups:
-- Refusals: schema
-- Events: none
-- The first call writes `obliterating` in place of the schema, which no other script accepts, so that nobody meets a
-- shard that is half gone; the last call writes the schema back. While jobs run the first call does nothing, unless
-- force = 1. What is configured stays, and what live processes are known by: names of tasks, workers, who leads, the
-- numbers that only grow. A share is what one SCAN of `limit` finds. `conf` keeps the token of the last run, so that a
-- repeat of its last call does not begin anew. Answers running (with how many jobs), more or done, the cursor of the
-- next share, and how many jobs and keys went.
--- @include "shard"
local MARK, token, cursor = 'obliterating', ARGV[3], ARGV[5]
local function answer(word, next_, jobs, keys) return {1, word, next_, jobs, keys} end

if pool.schema ~= MARK then
  -- A share that is not a first one comes to a shard that somebody has emptied and opened meanwhile.
  if redis.call('HGET', P .. 'conf', 'obliterated') == token or cursor ~= '0' then return answer('done', '0', 0, 0) end
  local running = redis.call('ZCARD', P .. 'active')
  if running > 0 and ARGV[4] ~= '1' then return answer('running', '0', running, 0) end
  redis.call('HSET', P .. 'conf', 'schema', MARK)
  cursor = '0'
end

local KEPT = {conf = true, limits = true, tasks = true, names = true, workers = true, leader = true, fence = true,
  marks = true}
local pattern = string.gsub(P, '[%[%]%*%?\\]', '\\%0') .. '*'
local page = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', ARGV[6])
local gone, jobs, count_ = {}, {}, 0
for _, key in ipairs(page[2]) do
  local name = string.sub(key, #P + 1)
  local kind, rest = string.match(name, '^(%a+):(.+)$')
  if kind == 'worker' then
    redis.call('HDEL', key, 'stop', 'alone')
  elseif not KEPT[name] then
    push(gone, key)
    -- A job has a row, a hash, or both, which go together, so that it is counted once.
    if kind == 'run' or kind == 'job' then
      jobs[rest] = true
      push(gone, P .. 'job:' .. rest, P .. 'run:' .. rest)
    end
  end
end
unlink(gone)
for _ in pairs(jobs) do count_ = count_ + 1 end
if page[1] ~= '0' then return answer('more', page[1], count_, #gone) end

redis.call('HDEL', P .. 'conf', 'tiers', 'keyed', 'leftover', 'once', 'parks', 'old', 'moved', 'cuts')
redis.call('HSET', P .. 'conf', 'schema', string.match(ARGV[1], '%S+'), 'obliterated', token)
return answer('done', '0', count_, #gone)
