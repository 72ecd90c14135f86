#!lua flags=allow-oom
-- extend_lease: active → active, with a later deadline
--
-- KEYS: prefix
-- ARGV: schema clock_ms lease_ms
-- Groups: leases(id attempts)
-- Refusals: schema
-- Events: none
-- Answers the ids whose leases were lost, and those of jobs that were told to stop.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "owner"
--- @include "rank"
--- @include "slots"
--- @include "node"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "charge"
--- @include "finish"
--- @include "extend"
tick()
next_argument = 5
local lost = {}
for _, e in ipairs(next_group(tonumber(ARGV[4]), 2)) do
  if not extend(e[1], tonumber(e[2]), tonumber(ARGV[3])) then push(lost, e[1]) end
end
write_extensions()
close()
return {1, lost, extensions.stopping}
