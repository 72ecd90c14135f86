#!lua flags=allow-oom
-- fail: active → scheduled, dead, ended (cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: finished(kind id attempts run_ms cost retry_ms reason group blob)
-- Refusals: schema
-- Events: stats retried, dead, cancelled; done:<waiter>; wake t
-- Answers one word per job: done (also for a repeat), retry, dead, cancelled (it was told to stop before), stale, gone.
-- Only the current attempt is heard.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "owner"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "finish"
tick()
next_argument = 4
local words = finish_all(next_group(tonumber(ARGV[3]), 9))
write_held()
write_moves()
write_estimates()
close()
return {1, words}
