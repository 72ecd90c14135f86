#!lua flags=no-writes
-- browse: a page of one index, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms index newest before score id skip count looks tenant task reason group lane latest
-- Groups:
-- Refusals: schema
-- Events: none
-- Members of a sorted set of jobs in the order of (score, id); newest = 1 turns it round. Starts behind (score, id),
-- at the beginning when id is '', and leaves out `skip` more. before > 0 leaves out scores from there on. Conditions
-- that are not '' are looked up in the rows: at most `looks` of them, whatever is found; of a queue, ten members that
-- stand for sub-lanes count as one. task may be several, one a line. latest > 0: submitted by then, of jobs that have
-- not ended. Answers: how many members there are (below `before`), id and score of each found, the position behind the
-- last that was looked at, and its score and id, '' at the end of the set. By (score, id) a page goes on where it
-- stopped, whatever came or went meanwhile. Of a queue, the place is (score, member).
--- @include "shard"
--- @include "generations"
--- @include "row"
--- @include "position"
local index, earlier = string.gsub(ARGV[3], '^<', '')
local queue = string.find(index, '^qc?:')
if earlier == 1 and not pool.old then
  return {1, 0, {}, 0, '', ''}
elseif earlier == 1 then
  generation.turn_over()
end
local set, reverse, before_ms = (queue and W or P) .. index, ARGV[4] == '1', tonumber(ARGV[5])
local want, looks = tonumber(ARGV[9]), tonumber(ARGV[10])
local tenant, reason, group = ARGV[11], ARGV[13], ARGV[14]
local lane, latest = ARGV[15], tonumber(ARGV[16])
local tasks -- the numbers of those that are meant; nil = any
for name in string.gmatch(ARGV[12], '[^\n]+') do
  tasks = tasks or {}
  tasks[redis.call('HGET', P .. 'tasks', name) or 'none of this name'] = true
end
local by_row = lane ~= '' or latest > 0
local by_run = tenant ~= '' or tasks or reason ~= '' or group ~= ''
local free = not by_run and not by_row

local function range(first, last)
  return redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, first, last, 'WITHSCORES')
end

local function holds(id)
  if free then return true end
  if by_row then
    local row = read_row(id)
    if not row or (lane ~= '' and row.lane ~= lane) or (latest > 0 and tonumber(row.submitted) > latest) then
      return false
    end
  end
  if not by_run then return true end
  local v = redis.pcall('HMGET', P .. 'run:' .. id, 't', 'n', 'o', 'g')
  if not v[1] then -- never leased; or, with v.err, a key of a wrong type
    local row = read_row(id)
    if not row then return false end
    v = {row.tenant, row.task}
  end
  return (tenant == '' or v[1] == tenant) and (not tasks or tasks[v[2]])
    and (reason == '' or v[3] == reason) and (group == '' or v[4] == group)
end

local newer = before_ms > 0 and redis.call('ZCOUNT', set, ARGV[5], '+inf') or 0
-- Those beyond `before` lie at the end, or turned round at the beginning.
local size, hidden = redis.call('ZCARD', set), reverse and newer or 0
if not reverse then size = size - newer end
local position = hidden
if ARGV[7] ~= '' then position = math.max(position, position_behind(set, reverse, ARGV[6], ARGV[7])) end
position = position + tonumber(ARGV[8])

local found, looked, last = {}, 0, {'', ''}
while #found < 2 * want and looked < looks and position < size do
  local most = math.min(free and want or 100, math.ceil(looks - looked), size - position)
  local page = range(position, position + most - 1)
  for i = 1, #page, 2 do
    position = position + 1
    last = {page[i + 1], page[i]}
    local id = queue and id_of(page[i]) or page[i]
    local is_job = string.byte(id) ~= 64 -- '@': a sub-lane, which is a queue of its own
    looked = looked + (is_job and 1 or 0.1)
    if is_job and holds(id) then
      push(found, id, page[i + 1])
      if #found == 2 * want then break end
    end
  end
end
if position >= size then last = {'', ''} end
return {1, size - hidden, found, position - hidden, last[1], last[2]}
