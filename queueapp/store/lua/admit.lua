#!lua
-- admit: ingress → pending, by a leader
--
-- KEYS: prefix
-- ARGV: schema clock_ms epoch nonce order
-- Groups: entries(entry id rank)
-- Refusals: schema fenced order_changed
-- Events: stats admitted, duplicates, garbled; wake:leader i
-- Where Lua knows the policy it ranks the job; else `rank` is its rank ('' = its number of submission), made for the
-- order that began with the configuration `order` (fence.lua). Entries go,
-- whatever became of their jobs: one whose job stands in ingress no more counts as a duplicate, one with id '' as
-- garbled. Answers these three counts, and what changed for a leader that chooses itself (telling.lua).
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
--- @include "fence"
--- @include "pick"
--- @include "telling"
next_argument = 7
local entries = next_group(tonumber(ARGV[6]), 3)
if is_over(ARGV[3], ARGV[4]) then
  return {0, 'fenced'}
end
if is_another_order(ARGV[5]) then
  return {0, 'order_changed'}
end
tick()
local admitted, duplicates, garbled = admit_entries(entries)
close()
local changed, corrected = tell_changes()
return {1, admitted, duplicates, garbled, changed, corrected}
