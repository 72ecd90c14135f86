#!lua
-- enqueue_flow: new → waiting, pending, scheduled, backlog, ingress
--
-- KEYS: prefix
-- ARGV: schema clock_ms mode idempotency idempotency_ttl_ms
-- Groups: nodes(id task tenant lane priority tier cost due_ms delay_ms expires_after_ms max_attempts max_crashes deadline_ms keys front fingerprint payload parent policy position waits) away(id parent policy position tenant blob) filled(id)
-- Refusals: schema
-- Events: stats enqueued; wake w, t; wake:leader i
-- A tree of jobs, parents before their children, all of it or nothing (tree.lua). mode: new, judged by the front door
-- as a whole; more, a further page of one that waits for it; sent, from another pool, where its parent waits. The last
-- two were accepted before: above a rate they wait for their moment. Of a further page is left out what hangs on a
-- parent that waits no more. filled: parents that have all of their children with this call. The idempotency key is
-- that of the first node. A repeat is told by the ids, which are looked up first. Answers a word (enqueued, exists,
-- conflict, throttled, backlog_full), the id that it is about, and the ms until one more try.
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
--- @include "tree"
tick()
next_argument = 9
local found = tree.read(next_group(tonumber(ARGV[6]), 21), next_group(tonumber(ARGV[7]), 6))
local filled, first = {}, found.jobs[1]
for i, f in ipairs(next_group(tonumber(ARGV[8]), 1)) do filled[i] = f[1] end

local word, about = tree.known(found)
local key = not word and ARGV[4] ~= '' and P .. 'idem:' .. first.tenant .. '|' .. ARGV[4]
local owner, fingerprint = string.match(key and redis.call('GET', key) or '', '^(%S+) (.*)$')
if owner then word, about = fingerprint == first.fingerprint and 'exists' or 'conflict', owner end
if not word then
  local refused = tree.refused(found, ARGV[3] ~= 'new')
  if refused then return {1, refused.outcome, refused.id, refused.wait or 0} end
  if ARGV[3] == 'more' then tree.prune(found) end
  tree.write(found)
  if key then redis.call('SET', key, first.id .. ' ' .. first.fingerprint, 'PX', math.max(1, tonumber(ARGV[5]))) end
end
if not word or #filled > 0 then
  tree.fill(filled)
  close()
end
return {1, word or 'enqueued', about or first and first.id or '', 0}
