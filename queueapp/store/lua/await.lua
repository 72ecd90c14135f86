#!lua flags=allow-oom
-- await: somebody waits for the end of a job
--
-- KEYS: prefix
-- ARGV: schema clock_ms id waiter
-- Groups:
-- Refusals: schema
-- Events: done:<waiter> when the job ends
-- Answers 1 when there is nothing to wait for (ended, dead or gone), else 0: the waiter is registered.
--- @include "shard"
--- @include "row"
local run = read_run(ARGV[3])
if run and (run.s == 'e' or run.s == 'd') then return {1, 1} end
if not run and redis.call('EXISTS', P .. 'job:' .. ARGV[3]) == 0 then return {1, 1} end
local waiters = redis.call('HGET', P .. 'waiters', ARGV[3]) or ''
if not string.find(' ' .. waiters .. ' ', ' ' .. ARGV[4] .. ' ', 1, true) then
  local _, spaces = string.gsub(waiters, ' ', '')
  if spaces >= 15 then waiters = string.match(waiters, ' (.*)$') end -- the oldest of 16 asks again by itself
  redis.call('HSET', P .. 'waiters', ARGV[3], waiters == '' and ARGV[4] or waiters .. ' ' .. ARGV[4])
end
return {1, 0}
