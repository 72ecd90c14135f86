#!lua flags=allow-oom
-- check_and_lease: pending → active, ended (expired)
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker seq want begin lease_ms
-- Groups:
-- Refusals: schema stale_call
-- Events: stats leased, expired; wake w
-- Answers: the rows leased, runnable (0/1; 2 = call again at once: sub-lanes must step aside), ms until something
-- becomes due (-1 = never), now.
--- @include "shard"
--- @include "clock"
--- @include "service"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "pick"
--- @include "lease"
local known = caller(ARGV[3], ARGV[4])
if not known then
  return {0, 'stale_call'}
end
tick()
local rows, more = lease(known, ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
local runnable = close()
return {1, rows, more and runnable * 2 or runnable, next_due(), now}
