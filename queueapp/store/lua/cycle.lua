#!lua flags=allow-oom
-- cycle: active → ended (completed), scheduled, dead; pending, ready → active, ended (expired)
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker seq want begin lease_ms
-- Groups: finished(kind id attempts run_ms cost retry_ms reason group blob) extend(id attempts) begun(id attempts)
-- Refusals: schema stale_call
-- Events: as complete, fail, extend_lease, check_and_lease; in bounded shares as promote_due and partition_recover
-- One round trip of a worker: what began, what ended, heartbeats, a share of what is due, new leases. Each part is
-- replay-safe by its own token: finishes and extensions by (id, attempts), leases by (worker, seq).
-- Answers: rows, runnable (as check_and_lease), next due ms, now, one word per finish, the ids whose leases were lost.
--- @include "shard"
--- @include "clock"
--- @include "service"
--- @include "row"
--- @include "owner"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "keysets"
--- @include "keys"
--- @include "move"
--- @include "pick"
--- @include "moving"
--- @include "lease"
--- @include "finish"
--- @include "due"
--- @include "extend"
local known = caller(ARGV[3], ARGV[4])
if not known then
  return {0, 'stale_call'}
end
tick()
next_argument = 11
local finished = next_group(tonumber(ARGV[8]), 9)
local extended = next_group(tonumber(ARGV[9]), 2)
local begun = next_group(tonumber(ARGV[10]), 2)
local lost = {}

for _, b in ipairs(begun) do mark_begun(b[1], tonumber(b[2])) end
local words = finish_all(finished)
for _, e in ipairs(extended) do
  if not extend(e[1], tonumber(e[2]), tonumber(ARGV[7])) then push(lost, e[1]) end
end
write_extensions()
promote(16)
draw(now + 7919 * tonumber(ARGV[4]), 8)
expire_due(16)
recover_due(8)
sub.sweep(8)
absorb(16)
write_held()
write_moves()
write_estimates()

local want = tonumber(ARGV[5])
local left = generation.share(want)
local rows, more = lease(known, ARGV[3], ARGV[4], want, tonumber(ARGV[6]), tonumber(ARGV[7]))
sweep_ready(16)
local runnable = close()
return {1, rows, (more or left and #rows < want) and runnable * 2 or runnable, next_due(), now, words, lost}
