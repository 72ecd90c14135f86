#!lua flags=allow-oom
-- stubs: ended (moved) → ended (moved), gone: what moved jobs left behind stays as long as it leads to something
--
-- KEYS: prefix
-- ARGV: schema clock_ms most every_ms
-- Groups: jobs(id hop word)
-- Refusals: schema
-- Events: stats trimmed
-- `stubs` has them by the moment at which they were last seen to lead to a job. `jobs`: what was found out of those of
-- the page before, by the number of their departure: lives = where they lead to is a job, or something of one; gone =
-- there is nothing any more, so that the stub goes, too. Answers the next page, those that were not looked at for
-- `every_ms`, the longest first: id, where it leads to, hop.
--- @include "shard"
--- @include "clock"
tick()
next_argument = 6
local lives, gone, rows = {}, {}, {}
for _, j in ipairs(next_group(tonumber(ARGV[5]), 3)) do
  local id = j[1]
  local v = redis.call('HMGET', P .. 'run:' .. id, 's', 'o', 'hp')
  if v[1] == 'e' and v[2] == 'moved' and v[3] == j[2] then
    if j[3] == 'gone' then
      push(gone, id)
      push(rows, P .. 'run:' .. id)
    else
      push(lives, now, id)
    end
  end
end
variadic('ZADD', P .. 'stubs', lives)
variadic('ZREM', P .. 'stubs', gone)
unlink(rows)
if #gone > 0 then redis.call('HINCRBY', P .. 'stats', 'trimmed', #gone) end

local page = {}
local due = now - tonumber(ARGV[4])
for i, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'stubs', '-inf', due, 'LIMIT', 0, tonumber(ARGV[3]))) do
  local v = redis.call('HMGET', P .. 'run:' .. id, 'mv', 'hp')
  page[i] = {id, v[1] or '', v[2] or '0'}
end
return {1, page}
