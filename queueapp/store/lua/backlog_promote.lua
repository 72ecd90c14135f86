#!lua
-- backlog_promote: backlog → pending or ingress when due, by a draw between the tiers
--
-- KEYS: prefix
-- ARGV: schema clock_ms seed most
-- Groups:
-- Refusals: schema
-- Events: stats unparked; wake w; wake:leader i
-- The tier by weight, in it the tenants in turn (draw.lua); the same seed draws the same. At most 64 in a call.
-- Answers how many went, whether there may be more, and ms until something becomes due (-1 = never).
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "due"
tick()
local promoted, more = draw(tonumber(ARGV[3]), tonumber(ARGV[4]))
close()
return {1, promoted, more and 1 or 0, next_due()}
