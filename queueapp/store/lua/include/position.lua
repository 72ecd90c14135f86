-- How many members of a sorted set come up to (score, id), which need not be there any more: those of better score,
-- then by halves among those of the same. So a page goes on where the one before ended, whatever came or went.
local function position_behind(set, reverse, score, id)
  local first, last = '-inf', '(' .. score
  if reverse then first, last = last, '+inf' end
  local low = redis.call('ZCOUNT', set, first, last)
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do
    local mid = math.floor((low + high) / 2)
    local member = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, mid, mid)[1]
    local passed = member == id or less(member, id) ~= reverse
    if passed then low = mid + 1 else high = mid end
  end
  return low
end
