#!lua flags=allow-oom
-- check_and_lease: pending, ready → active, ended (expired, cancelled); ready → pending, ingress
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker seq want begin lease_ms
-- Groups:
-- Refusals: schema stale_call
-- Events: stats leased, expired; wake w; wake:leader i
-- Before the pick a share of what stands in the order of an earlier policy comes over (generations.lua). Answers: the
-- rows leased, runnable (0/1; 2 = call again at once: sub-lanes must step aside, or more of the old order is left), ms
-- until something becomes due (-1 = never), now.
--- @include "shard"
--- @include "clock"
--- @include "service"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "pick"
--- @include "moving"
--- @include "lease"
local known = caller(ARGV[3], ARGV[4])
if not known then
  return {0, 'stale_call'}
end
tick()
local want = tonumber(ARGV[5])
local left = generation.share(want)
local rows, more = lease(known, ARGV[3], ARGV[4], want, tonumber(ARGV[6]), tonumber(ARGV[7]))
local runnable = close()
return {1, rows, (more or left and #rows < want) and runnable * 2 or runnable, next_due(), now}
