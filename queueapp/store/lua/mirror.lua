#!lua flags=no-writes
-- mirror: the lanes that may run, with their first jobs, a page at a time, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms cursor
-- Groups:
-- Refusals: schema
-- Events: none
-- For a leader that chooses the lanes itself (telling.lua has the rows). The cursor is `0` to begin with and at the
-- end; in between it holds the cursor of ZSCAN over the tenants, and those of its last page with the cursors over their
-- lanes. Who stands in the walk from the first page to the last is told at least once.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "refresh"
--- @include "pick"
--- @include "telling"
local PAGE = 250
local after, rest = string.match(ARGV[3], '^(%d+) ?(.*)$')
local rows, open = {}, {}
for t, from in string.gmatch(rest, '(%S+) (%d+)') do push(open, {t, from}) end
if #open == 0 then
  local found = redis.call('ZSCAN', W .. 'walk', after, 'COUNT', 50)
  after = found[1]
  for i = 1, #found[2], 2 do push(open, {id_of(found[2][i]), '0'}) end
end
local left = {}
for _, tenant in ipairs(open) do
  local t, from = tenant[1], tenant[2]
  repeat
    if #rows >= PAGE then
      push(left, t .. ' ' .. from)
      break
    end
    local found = redis.call('ZSCAN', W .. 'lanes:' .. t, from, 'COUNT', 50)
    from = found[1]
    for i = 1, #found[2], 2 do
      push(rows, mirror_row(t, id_of(found[2][i]), tonumber(found[2][i + 1]), tie_of(found[2][i])))
    end
  until from == '0'
end
local cursor = after
if #left > 0 then cursor = after .. ' ' .. table.concat(left, ' ') end
return {1, cursor, rows}
