#!lua
-- promote_due: scheduled → pending when due; pending, scheduled → ended (expired)
--
-- KEYS: prefix
-- ARGV: schema clock_ms limit
-- Groups:
-- Refusals: schema
-- Events: stats promoted, expired; wake w; done:<waiter>
-- Keys with waiters that nobody has looked at for a second are looked at again (keys.lua).
-- Answers counts: promoted, expired, whether more is due, and ms until the next becomes due (-1 = none).
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
local limit = tonumber(ARGV[3])
local expired, more_expired = expire_due(limit)
write_moves()
local promoted, more_due = promote(limit)
local more_keys = sub.sweep(limit, now)
close()
return {1, promoted, expired, (more_expired or more_due or more_keys) and 1 or 0, next_due()}
