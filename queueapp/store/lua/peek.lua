#!lua flags=no-writes
-- peek: what would be leased next, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms count
-- Groups:
-- Refusals: schema
-- Events: none
-- What check_and_lease would lease, without its commit: what is ready, in order; then the walk, from which a pool with
-- scheduled dispatch is dispatched; last what still stands in the order of an earlier policy, which comes over piece by
-- piece. Answers tenant, lane, id per job.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "refresh"
--- @include "charge"
--- @include "pick"
--- @include "moving"
local reply, want = {1}, tonumber(ARGV[3])
if pool.scheduled or pool.leftover then
  for _, id in ipairs(want > 0 and redis.call('ZRANGE', P .. 'ready', 0, want - 1) or {}) do
    local run = read_run(id)
    if run then push(reply, {run.t, run.l, id}) end
  end
end
for _, job in ipairs(pick(want - (#reply - 1), pool.scheduled and 'all' or true).jobs) do
  push(reply, {job.row.tenant, job.row.lane, job.id})
end
for _, job in ipairs(generation.first_of_old(want - (#reply - 1))) do push(reply, {job.t, job.l, job.id}) end
return reply
