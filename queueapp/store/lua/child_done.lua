#!lua flags=allow-oom
-- child_done: waiting → pending, ingress, scheduled, dead, by what became of children in other pools
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: ended(parent child policy position outcome result entry)
-- Refusals: schema
-- Events: stats retried, dead; wake w, t; wake:leader i; done:<waiter>
-- What every script does that ends a job whose parent waits here (family.lua), for children that ended elsewhere. A
-- child is marked in the same script, so that one that is told of twice ends once; outcome `reopened`: it was dead and
-- is waited for again. entry: of the note, in the outbox of the child's pool; nothing is heard that is older than what
-- was. Answers for each row how many children its parent still waits for, -1 = nobody waits any more.
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
tick()
next_argument = 4
local ends, left, words = {}, {}, {}
local rows = next_group(tonumber(ARGV[3]), 7)
local function hear(parent)
  if ends[parent] then left[parent] = family.hear(parent, ends[parent]) or -1 end
  ends[parent] = nil
end
local order, seen = {}, {}
for _, e in ipairs(rows) do
  local parent, child = e[1], {e[2], e[3], e[4], e[5], e[6], e[7]}
  if not left[parent] then
    left[parent] = -1
    push(order, parent)
  end
  if seen[e[2]] or e[5] == 'reopened' then hear(parent) end -- what was told of it before comes first
  seen[e[2]] = true
  if e[5] == 'reopened' then
    left[parent] = family.hear_again(parent, child) or left[parent]
  else
    append(ends, parent, child)
  end
end
for _, parent in ipairs(order) do hear(parent) end
for i, e in ipairs(rows) do words[i] = left[e[1]] end
close()
return {1, words}
