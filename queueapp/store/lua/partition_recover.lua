#!lua flags=allow-oom
-- partition_recover: active → pending (its old place), ingress, dead (crash budget spent), ended (cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms limit
-- Groups:
-- Refusals: schema
-- Events: stats lost, dead, cancelled; wake w; wake:leader i; done:<waiter>
-- Expired leases, at most `limit` of them. State and deadline are the token: a repeat recovers the next ones.
-- Answers counts: back to pending, dead, whether another call would find more, and cancelled: told to stop before.
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
--- @include "due"
tick()
local counts_, more = recover_due(tonumber(ARGV[3]))
write_held()
close()
return {1, counts_.pending, counts_.dead, more and 1 or 0, counts_.cancelled}
