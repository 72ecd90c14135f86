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
-- that are not '' are looked up in the rows: at most `looks` of them, whatever is found. task may be several, one a
-- line. latest > 0: submitted by then, of jobs that have not ended. Answers: how many members there are (below
-- `before`), id and score of each found, the position behind the last that was looked at, and its score and id, '' at
-- the end of the set. By (score, id) a page goes on where it stopped, whatever came or went meanwhile. Of a queue, the
-- place is (score, member).
--- @include "shard"
--- @include "generations"
--- @include "row"
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
local free = tenant == '' and not tasks and reason == '' and group == '' and not by_row

local function range(first, last)
  return redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, first, last, 'WITHSCORES')
end

-- How many members come up to (score, id), which need not be there any more: those of better score, then by halves
-- among those of the same.
local function up_to(score, id)
  local first, last = '-inf', '(' .. score
  if reverse then first, last = last, '+inf' end
  local low = redis.call('ZCOUNT', set, first, last)
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do
    local mid = math.floor((low + high) / 2)
    local member = range(mid, mid)[1]
    local passed = member == id or less(member, id) ~= reverse
    if passed then low = mid + 1 else high = mid end
  end
  return low
end

local function holds(id)
  if free then return true end
  if by_row then
    local row = read_row(id)
    if not row or (lane ~= '' and row.lane ~= lane) or (latest > 0 and tonumber(row.submitted) > latest) then
      return false
    end
  end
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
if ARGV[7] ~= '' then position = math.max(position, up_to(ARGV[6], ARGV[7])) end
position = position + tonumber(ARGV[8])

local found, looked, last = {}, 0, {'', ''}
while #found < 2 * want and looked < looks and position < size do
  local page = range(position, position + math.min(free and want or 100, looks - looked, size - position) - 1)
  for i = 1, #page, 2 do
    position, looked = position + 1, looked + 1
    last = {page[i + 1], page[i]}
    local id = queue and id_of(page[i]) or page[i]
    if string.byte(id) ~= 64 and holds(id) then -- '@': a sub-lane, which is a queue of its own
      push(found, id, page[i + 1])
      if #found == 2 * want then break end
    end
  end
end
if position >= size then last = {'', ''} end
return {1, size - hidden, found, position - hidden, last[1], last[2]}
