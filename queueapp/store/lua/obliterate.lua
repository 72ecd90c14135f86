#!lua flags=allow-oom
-- obliterate: every job of the shard, in whatever state, and all that was kept of them → gone, in bounded shares
--
-- KEYS: prefix
-- ARGV: schema clock_ms token force cursor limit
-- Groups:
-- Refusals: schema
-- Events: none
-- The first share of a run (cursor '') writes `obliterating` in place of the schema, which no other script accepts, so
-- that nobody meets a shard that is half gone; the last one writes the schema back. While jobs run the first one does
-- nothing, unless force = 1. What is configured stays, and what live processes are known by: names of tasks, workers,
-- who leads, the numbers that only grow; and, for its ten minutes, what was erased and must not arrive. A share is what
-- one SCAN of `limit` finds.
-- A cursor is that of SCAN, with the mark under which it was begun and the process of the server that gave it: only
-- where both are the same still does it lead to all that is left; else the share begins anew (process.lua). Who finds
-- no mark any more is told so, and changes nothing: the shard is at work.
-- `conf` keeps the run that was through last and its mark, so that the repeat of its last share does not begin anew.
-- Answers running (with how many jobs), more, done, reopened (another run was through), unmarked (none was: the mark
-- was lost), the cursor of the next share, and how many jobs and keys went.
--- @include "shard"
--- @include "process"
local MARK, token = 'obliterating', ARGV[3]
local function answer(word, next_, jobs, keys) return {1, word, next_, jobs, keys} end

local begun, giver, cursor = string.match(ARGV[5], '^(%S+) (%S+) (%d+)$')
local kept = redis.call('HMGET', P .. 'conf', 'obliterating', 'obliterated')
local mark = kept[1]
if pool.schema ~= MARK then
  local last, under = string.match(kept[2] or '', '^(%S+) (%S+)$')
  if last == token then return answer('done', '', 0, 0) end
  if begun then return answer(under == begun and 'reopened' or 'unmarked', '', 0, 0) end
  local running = redis.call('ZCARD', P .. 'active')
  if running > 0 and ARGV[4] ~= '1' then return answer('running', '', running, 0) end
  mark = token
  redis.call('HSET', P .. 'conf', 'schema', MARK, 'obliterating', mark)
end

if begun ~= mark or giver ~= process then cursor = '0' end

local KEPT = {conf = true, limits = true, tasks = true, names = true, workers = true, watched = true, leader = true,
  fence = true, marks = true}
local page = redis.call('SCAN', cursor, 'MATCH', P .. '*', 'COUNT', ARGV[6])
local gone, jobs, count_, number = {}, {}, 0, 0
for _, key in ipairs(page[2]) do
  local name = string.sub(key, #P + 1)
  local kind, rest = string.match(name, '^(%a+):(.+)$')
  if kind == 'worker' then
    redis.call('HDEL', key, 'stop', 'alone')
  elseif not KEPT[name] and kind ~= 'erased' then
    push(gone, key)
    -- A job has a row, a hash, or both, which go together, so that it is counted once.
    if kind == 'run' or kind == 'job' then
      jobs[rest] = true
      push(gone, P .. 'job:' .. rest, P .. 'run:' .. rest)
    end
  end
end
for first = 1, #gone, 4000 do
  number = number + redis.call('UNLINK', unpack(gone, first, math.min(first + 3999, #gone)))
end
for _ in pairs(jobs) do count_ = count_ + 1 end
if page[1] ~= '0' then return answer('more', mark .. ' ' .. process .. ' ' .. page[1], count_, number) end

redis.call('HDEL', P .. 'conf', 'tiers', 'keyed', 'leftover', 'once', 'parks', 'old', 'moved', 'cuts', 'blocks',
  'sweeps', 'obliterating')
redis.call('HSET', P .. 'conf', 'schema', string.match(ARGV[1], '%S+'), 'obliterated', token .. ' ' .. mark)
return answer('done', '', count_, number)
