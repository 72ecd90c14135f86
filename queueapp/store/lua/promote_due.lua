#!lua
-- promote_due: scheduled, ready → pending, ingress; ingress → pending; any, backlog, waiting → ended (expired), dead
--
-- KEYS: prefix
-- ARGV: schema clock_ms limit
-- Groups:
-- Refusals: schema
-- Events: stats promoted, expired; wake w; wake:leader i; done:<waiter>
-- What waits for children that nobody added in time dies, and the children of cancelled parents are cancelled
-- (cancelling.lua).
-- Keys with waiters are looked at again when their time has come (keys.lua), and tenants and lanes that have a token
-- again enter the walk (timers.lua).
-- Jobs that nobody leased in time leave ready (ready.lua); what a leader left in ingress when the pool went over to
-- direct dispatch is admitted (admission.lua).
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
--- @include "timers"
--- @include "cancelling"
tick()
local limit = tonumber(ARGV[3])
local expired, more_expired = expire_due(limit)
local more_children = family.sweep(limit)
write_moves()
local promoted, more_due = promote(limit)
local more_keys = sub.sweep(limit)
absorb(limit)
local more_ready = sweep_ready(limit)
write_moves()
local more_tokens = rates.sweep(limit)
rates.look_for_lost()
close()
local more = more_expired or more_children or more_due or more_keys or more_ready or more_tokens
return {1, promoted, expired, more and 1 or 0, next_due()}
