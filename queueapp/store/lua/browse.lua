#!lua flags=no-writes
-- browse: a page of one index, read only
--
-- KEYS: prefix
-- ARGV: schema clock_ms index newest before score id skip count looks tenant task reason group
-- Groups:
-- Refusals: schema
-- Events: none
-- Members of a sorted set of jobs in the order of (score, id); newest = 1 turns it round. Starts behind (score, id),
-- at the beginning when id is '', and leaves out `skip` more. before > 0 leaves out scores from there on (newest = 1
-- only). Conditions that are not '' are looked up in the rows: at most `looks` of them, whatever is found. Answers:
-- how many members there are (below `before`), id and score of each found, the position behind the last that was
-- looked at, and its score and id, '' at the end of the set. By (score, id) a page goes on where it stopped, whatever
-- came or went meanwhile. Of a queue, the place is (score, member).
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
local task = ARGV[12] ~= '' and (redis.call('HGET', P .. 'tasks', ARGV[12]) or 'none of this name') or ''
local free = tenant == '' and task == '' and reason == '' and group == ''

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
  local v = redis.pcall('HMGET', P .. 'run:' .. id, 't', 'n', 'o', 'g')
  if not v[1] then -- never leased; or, with v.err, a key of a wrong type
    local row = read_row(id)
    if not row then return false end
    v = {row.tenant, row.task}
  end
  return (tenant == '' or v[1] == tenant) and (task == '' or v[2] == task)
    and (reason == '' or v[3] == reason) and (group == '' or v[4] == group)
end

local newer = before_ms > 0 and redis.call('ZCOUNT', set, ARGV[5], '+inf') or 0
local size = redis.call('ZCARD', set)
local position = newer
if ARGV[7] ~= '' then position = math.max(position, up_to(ARGV[6], ARGV[7])) end
position = position + tonumber(ARGV[8])

local found, looked, last = {}, 0, {'', ''}
while #found < 2 * want and looked < looks and position < size do
  local page = range(position, position + math.min(free and want or 100, looks - looked) - 1)
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
return {1, size - newer, found, position - newer, last[1], last[2]}
