#!lua flags=allow-oom
-- fsck: recount a live shard, in steps; with mend = 1 what is proven to be wrong is put right
--
-- KEYS: prefix
-- ARGV: schema clock_ms part mend limit
-- Groups: subjects(name cursor)
-- Refusals: schema
-- Events: stats fsck_mended
-- The same invariants as `verify`, a few names a call, while everybody works. A script sees one moment: what a row says
-- and where its id stands are compared in the same call, so that no difference is one that was just on its way. Only
-- sums over the whole shard need two looks (queueapp/store/recount.py takes them). part:
--   jobs      names are ids: everything that a row, or what is left of one, demands elsewhere. Its facts are the
--             material of the sums: id, tenant, state, key set, and what no transition leaves as it was
--   keys      names are keys without the prefix: everything that their members demand of rows and of other keys; at
--             most `limit` members of each, from `cursor` on
--   whole     what stands in no key that a SCAN could show: flags and tokens that are missing
--   ingress   names are ids in state ingress that no entry up to the entry `cursor` named
--   counters  one name (counts, tenants, keyusers, keysets, keynames, limits): a page of it, as facts
--   adjust    names are `w`, `t:<tenant>`, `s:<key set>`: cursor is what is to be added to the sum. `floors`, `front`:
--             `<n>@<version>`, for that version of the configuration only; `k:<digest>`: `<n>@<sum>`, if it is that
--             still. `set:<key set>`, `text:<digest>`: nobody uses it. `wake`
-- With mend = 0 nothing at all is written. With 1 the call ends at the first name with a difference: what follows is
-- looked at as it stands after it. Answers the moment, findings {kind, name, what, word, and the
-- name and cursor at which it was met}, names with cursors that are left, and facts; the words are mendable, mended,
-- by_hand.
-- Replays: a difference that was put right is found no more. `adjust` adds, and its caller does not repeat it.
--- @include "shard"
--- @include "clock"
--- @include "service"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "keysets"
--- @include "keys"
--- @include "move"
--- @include "due"
--- @include "finish"
--- @include "fsck_looks"
--- @include "fsck_family"
--- @include "fsck_jobs"
--- @include "fsck_line"
--- @include "fsck_keyed"
--- @include "fsck_sets"
--- @include "fsck_whole"
next_argument = 7
local subjects = next_group(tonumber(ARGV[6]), 2)
local part, most, rest = ARGV[3], tonumber(ARGV[5]), {}
local PARTS = {jobs = fsck.look_at_job, keys = fsck.look_at_key, whole = fsck.look_at_whole,
  ingress = fsck.look_at_ingress, counters = fsck.tell_counters, adjust = fsck.adjust}
if fsck.mending then tick() end
for i, s in ipairs(subjects) do
  fsck.subject = s
  local next_ = PARTS[part](s[1], s[2], most)
  if next_ and next_ ~= '0' then push(rest, {s[1], next_}) end
  if fsck.mended > 0 and part ~= 'adjust' then
    for k = i + 1, #subjects do push(rest, subjects[k]) end
    break
  end
end
if fsck.mended > 0 then
  count('fsck_mended', fsck.mended)
  write_held()
  if next(key_uses) then write_key_uses() end
  close()
end
return {1, now, fsck.findings, rest, fsck.told}
