#!lua flags=allow-oom
-- cycle: active → ended (completed, cancelled), scheduled, dead; pending, ready → active, ended (expired, cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms worker seq want begin lease_ms
-- Groups: finished(kind id attempts run_ms cost retry_ms reason group blob) extend(id attempts) begun(id attempts)
-- Refusals: schema stale_call
-- Events: as complete, fail, extend_lease, check_and_lease; in bounded shares as promote_due, partition_recover,
-- backlog_promote and rerank
-- One round trip of a worker: what began, what ended, heartbeats, new leases, and shares: of what is due, of the draw
-- from the backlog, of what a leader left in ingress and ready, of the order of an earlier policy. Each part is
-- replay-safe by its own token: finishes and extensions by (id, attempts), leases by (worker, seq).
-- Answers: rows, runnable (as check_and_lease), next due ms, now, one word per finish, the ids whose leases were lost,
-- those of this worker's jobs that were told to stop before this call, such ones among the extended, and the version of
-- the configuration.
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
--- @include "timers"
--- @include "cancelling"
local known = caller(ARGV[3], ARGV[4])
if not known then
  return {0, 'stale_call'}
end
tick()
next_argument = 11
local words, lost = nil, {}
do -- a script has 200 local names at most
local finished = next_group(tonumber(ARGV[8]), 9)
local extended = next_group(tonumber(ARGV[9]), 2)
local begun = next_group(tonumber(ARGV[10]), 2)

for _, b in ipairs(begun) do mark_begun(b[1], tonumber(b[2]), ARGV[3]) end
words = finish_all(finished, ARGV[3])
for _, e in ipairs(extended) do
  if not extend(e[1], tonumber(e[2]), tonumber(ARGV[7]), ARGV[3]) then push(lost, e[1]) end
end
write_extensions()
end
promote(16)
draw(now + 7919 * tonumber(ARGV[4]), 8)
expire_due(16)
recover_due(8)
family.sweep(16)
sub.sweep(8)
absorb(16)
write_held()
write_moves()
rates.sweep(16)
write_estimates()

do -- as above
local want = tonumber(ARGV[5])
local left = generation.share(want)
local rows, more = lease(known, ARGV[3], ARGV[4], want, tonumber(ARGV[6]), tonumber(ARGV[7]))
sweep_ready(16, #rows)
local runnable = close()
return {1, rows, (more or left and #rows < want) and runnable * 2 or runnable, next_due(), now, words, lost,
  known.stop, extensions.stopping, tonumber(redis.call('HGET', P .. 'conf', 'version') or 0)}
end
