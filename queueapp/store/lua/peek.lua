#!lua flags=no-writes
-- peek: what would be leased next, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms count
-- Groups:
-- Refusals: schema
-- Events: none
-- The walk of check_and_lease without its commit. Answers tenant, lane, id per job.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "refresh"
--- @include "charge"
--- @include "pick"
local reply = {1}
for i, job in ipairs(pick(tonumber(ARGV[3]), true).jobs) do
  reply[i + 1] = {job.row.tenant, job.row.lane, job.id}
end
return reply
