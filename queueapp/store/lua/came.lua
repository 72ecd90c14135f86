#!lua flags=no-writes
-- came: which of these have come here from another pool, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id hop)
-- Refusals: schema
-- Events: none
-- Asked before a job that was asked back (recall.lua) stands in line again where it was: by the departure of this
-- number, or a later one. Answers one word per id: here (it is, or was), none.
--- @include "shard"
--- @include "transit"
next_argument = 4
local words = {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 2)) do
  words[i] = has_come(j[1], tonumber(j[2])) and 'here' or 'none'
end
return {1, words}
