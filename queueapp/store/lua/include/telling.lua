-- What is told to a leader that chooses the lanes itself: rows of tenant, lane ('' = the tenant itself), whether it
-- stands in the walk, rank and number of submission of its first job, what that will be charged, and both weights.
local mirror_row, tell_changes
do -- a script has 200 local names at most
local TOLD_MOST = 500

-- S and tie are those of the walk; without them, what the store has.
function mirror_row(t, l, S, tie)
  if not S then
    local N, c = l == '' and node('') or node(t), l == '' and t or l
    S = score(N, c)
    tie = N.tie[c]
  end
  local cost = 0
  if S and l ~= '' then
    local set = 'q:' .. t .. '|' .. l
    local id = id_of(redis.call('ZRANGE', W .. set, 0, 0)[1] or '')
    if is_pointer(id) then id = id_of(redis.call('ZRANGE', W .. set .. '|' .. id, 0, 0)[1] or '') end
    local row = read_row(id)
    cost = row and cost_of(row) or 1
  end
  local weight = l ~= '' and limit_of('l:' .. t .. '|' .. l).weight or 1
  return {
    t, l, S and 1 or 0, string.format('%.17g', S or 0), S and tonumber(tie, 16) or 0, string.format('%.17g', cost),
    string.format('%.17g', limit_of('t:' .. t).weight), string.format('%.17g', weight),
  }
end

-- `score` (node.lua) of many children, as far as it is not known.
local function load_scores(N, children)
  local unknown, members = {}, {}
  for _, c in ipairs(children) do
    if N.S[c] == nil then push(unknown, c) end
  end
  if #unknown == 0 then return end
  local ties = pool.ties and redis.call('HMGET', N.heads, unpack(unknown)) or {}
  for i, c in ipairs(unknown) do members[i] = (ties[i] or '') .. c end
  local found = redis.call('ZMSCORE', N.walk, unpack(members))
  for i, c in ipairs(unknown) do
    local tie = not pool.ties and '' or ties[i]
    local S = tie and tonumber(found[i] or nil) or false
    N.S[c], N.tie[c], N.stored[c] = S, tie, S and tie
  end
end

-- Reads what `mirror_row` asks of many names: limits in one command, places in two for each node.
local function load_rows(names)
  local fields, seen, children = {}, {}, {[''] = {}}
  for _, name in ipairs(names) do
    local t, l = string.match(name, '^([^|]+)|(.*)$')
    if not seen[t] then push(fields, 't:' .. t) end
    seen[t] = true
    if l == '' then
      push(children[''], t)
    else
      push(fields, 'l:' .. name)
      append(children, t, l)
    end
  end
  load_limits(fields)
  for t, list in pairs(children) do load_scores(node(t), list) end
end

-- What changed and what was corrected since this was last told, each at most once.
function tell_changes()
  local rows, corrected = {}, {}
  if not pool.mirrored then return rows, corrected end
  local names = redis.call('ZRANGE', P .. 'entered', 0, TOLD_MOST - 1)
  if #names > 0 then load_rows(names) end
  for i, name in ipairs(names) do
    local t, l = string.match(name, '^([^|]+)|(.*)$')
    rows[i] = mirror_row(t, l)
  end
  if #names > 0 then redis.call('ZREMRANGEBYRANK', P .. 'entered', 0, #names - 1) end
  local found = redis.call('ZRANGE', P .. 'corrections', 0, TOLD_MOST - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local t, l = string.match(found[i], '^([^|]+)|(.*)$')
    push(corrected, {t, l, found[i + 1]})
  end
  if #found > 0 then redis.call('ZREMRANGEBYRANK', P .. 'corrections', 0, #found / 2 - 1) end
  return rows, corrected
end
end
