#!lua flags=allow-oom
-- partition_recover: active → pending (its old place), ingress, dead (crash budget spent), ended (cancelled)
--
-- KEYS: prefix
-- ARGV: schema clock_ms limit witness after
-- Groups:
-- Refusals: schema
-- Events: stats lost, dead, cancelled, workers_lost; wake w; wake:leader i; done:<waiter>
-- Expired leases, and those of workers whose sign of life is gone (absent.lua): at most `limit` in all. State, deadline
-- and absence are the token: a repeat recovers the next ones. `witness`: a channel on which the caller has been
-- subscribed for longer than workers need to come back after an outage; without it no worker is looked at. `after`: the
-- last worker that the caller's last call looked at, '' = from the first.
-- Answers counts: back to pending, dead, whether another call would find more, and cancelled: told to stop before;
-- workers lost, and `after` for the next call.
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
--- @include "presence"
--- @include "absent"
tick()
local limit = tonumber(ARGV[3])
local counts_, more = recover_due(limit)
local gone, after, left = recover_absent(ARGV[4], ARGV[5], limit, counts_)
write_held()
strike(gone)
close()
return {1, counts_.pending, counts_.dead, (more or left) and 1 or 0, counts_.cancelled, #gone, after}
