-- What leaves the backlog: a draw among the parked jobs that are due. Each scheduler does it, and the workers' own
-- calls in small shares; no leader is needed.
local draw
do -- a script has 200 local names at most
local MODULUS = 2147483647
local AT_ONCE = 64 -- tenants that one draw looks at, and most jobs that it takes

-- Park and Miller's numbers: the same seed draws the same.
local function generator(seed)
  local x = seed % MODULUS
  if x == 0 then x = 1 end
  return function()
    x = 16807 * x % MODULUS
    return x / MODULUS
  end
end

-- The due jobs of a tier, by tenants in turn: a function that answers (id, tenant) of the next one, or nothing. Of more
-- than 64 tenants with due jobs, 64 that stand side by side, beginning with whichever was drawn.
local function in_turn(tier, random, most)
  local turns = P .. 'bl' .. tier .. 'turns'
  local there = redis.call('ZCOUNT', turns, '-inf', now)
  if there == 0 then return function() end, false end
  local first = math.floor(random() * there)
  local names = redis.call('ZRANGE', turns, first, math.min(there, first + AT_ONCE) - 1)
  if #names < AT_ONCE and first > 0 then
    local rest = redis.call('ZRANGE', turns, 0, math.min(first, AT_ONCE - #names) - 1)
    for _, t in ipairs(rest) do push(names, t) end
  end
  local at, each, lines = 1, math.ceil(most / #names) + 1, {}
  return function()
    while #names > 0 do
      if at > #names then at = 1 end
      local t = names[at]
      local line = lines[t]
      if not line or (line.at > #line.ids and not line.whole) then
        local skip, n = line and #line.ids or 0, each
        local ids = redis.call('ZRANGEBYSCORE', P .. backlog.line(t, tier), '-inf', now, 'LIMIT', skip, n)
        line = line or {at = 1, ids = {}}
        for _, id in ipairs(ids) do push(line.ids, id) end
        line.whole, lines[t] = #ids < n, line
      end
      local id = line.ids[line.at]
      if id then
        line.at, at = line.at + 1, at + 1
        return id, t
      end
      table.remove(names, at)
    end
  end, true
end

-- Up to `most` due jobs as {id, tenant, tier}, in the order in which they go. Where both tiers have due ones, one of
-- tier start comes after each `weight` of tier continue, from a point that is drawn: its part is exact on the average
-- over calls of any size. Changes nothing.
local function choose(seed, most)
  local random = generator(seed)
  local weight = tonumber(redis.call('HGET', P .. 'conf', 'draw') or 10)
  local credit, step, chosen = random(), 1 / (weight + 1), {}
  local fresh = in_turn('', random, most)
  local continued = in_turn('c', random, most)
  local f, ft = fresh()
  local c, ct = continued()
  while #chosen < most and (f or c) do
    local takes_fresh = not c
    if f and c then
      credit = credit + step
      takes_fresh = credit >= 1
      if takes_fresh then credit = credit - 1 end
    end
    if takes_fresh then
      push(chosen, {f, ft, ''})
      f, ft = fresh()
    else
      push(chosen, {c, ct, 'c'})
      c, ct = continued()
    end
  end
  return chosen
end

-- Parked jobs that are due → pending, with a new place in line; how many, and whether there may be more.
function draw(seed, most)
  if not pool.parks then return 0, false end
  most = math.min(most, AT_ONCE)
  local chosen, promoted = choose(seed, most), 0
  if #chosen == 0 then return 0, false end
  local seq = take_seq(#chosen)
  for i, one in ipairs(chosen) do
    local id, t, tier = unpack(one)
    local row, state, run = waiting_row(id)
    if not row then quarantine('backlog', id, t) end
    backlog.leave(id, t, tier)
    if row and state == 'b' then
      place_anew(id, row, run, seq + i - 1, ready_of(row, run))
      promoted = promoted + 1
    end
  end
  if promoted > 0 then count('unparked', promoted) end
  return promoted, #chosen == most
end
end
