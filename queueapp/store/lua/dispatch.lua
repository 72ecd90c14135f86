#!lua flags=allow-oom
-- dispatch: pending → ready, ended (expired, cancelled), by a leader
--
-- KEYS: prefix
-- ARGV: schema clock_ms epoch nonce order most window
-- Groups: picks(tenant lane)
-- Refusals: schema fenced order_changed
-- Events: stats dispatched, expired; wake w; wake:leader i
-- At most `most` jobs, and at most as many as `window` leaves beside those that are ready or leased, so that a repeat
-- fills only what is free. Where Lua knows the policy this is the pick of check_and_lease; else the first job of each
-- pick is taken. Of a pool whose dispatch is direct nothing is taken. Answers how many were dispatched, the room left,
-- whether something may run (2 = ask again at once: sub-lanes must step aside first, more than one call moves, or jobs
-- of the order before have to come over), per pick what became of it, and what changed (telling.lua).
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "due"
--- @include "fence"
--- @include "pick"
--- @include "moving"
--- @include "commit"
--- @include "telling"
--- @include "dispatching"
next_argument = 9
local picks = next_group(tonumber(ARGV[8]), 2)
if is_over(ARGV[3], ARGV[4]) then
  return {0, 'fenced'}
end
if is_another_order(ARGV[5]) then
  return {0, 'order_changed'}
end
tick()
local window = tonumber(ARGV[7])
if tonumber(redis.call('HGET', P .. 'marks', 'window') or nil) ~= window then
  redis.call('HSET', P .. 'marks', 'window', window)
end
local room = window - redis.call('ZCARD', P .. 'ready') - redis.call('ZCARD', P .. 'active')
generation.share(math.min(tonumber(ARGV[6]), math.max(0, room)))
local want, found = math.max(0, math.min(tonumber(ARGV[6]), room)), new_found()
if pool.scheduled and pool.mirrored then
  found = pick_lanes(picks, want)
elseif pool.scheduled and want > 0 then
  found = pick(want, 'all')
end
local jobs = commit_dispatch(found, ARGV[3])
close()
room = math.max(0, room - jobs)
local comes = pool.scheduled and generation.holds_jobs() and pool_open() -- of the order before, by the next calls
local runnable = pool.scheduled and walk_has_work() or comes
local taken = tell_taken(found)
local changed, corrected = tell_changes()
settle_wake(runnable and room > 0)
return {1, jobs, room, runnable and ((found.more or comes) and 2 or 1) or 0, taken, changed, corrected}
