#!lua flags=allow-oom
-- rerank: pending → pending, ingress: a share of what stands in the order of an earlier policy
--
-- KEYS: prefix
-- ARGV: schema clock_ms most
-- Groups:
-- Refusals: schema
-- Events: wake w; wake:leader i
-- Jobs keep their number of submission and are ranked by the policy in force (generations.lua). The same share, a
-- smaller one, is in every call that leases or dispatches. It takes what stands there: a repeat moves the next ones.
-- Answers how many it moved, how many have left the old order and how many stood in it when the policy changed, and
-- whether something is left to do.
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
--- @include "moving"
tick()
local total = pool.old and pool.old.total or 0
local moved = generation.move_over(tonumber(ARGV[3]))
local left = pool.old
close()
return {1, moved, left and left.moved or total, total, left and 1 or 0}
