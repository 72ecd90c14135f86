-- The shard that a script works on: its keys, its configuration, and the schema that guards both.
-- Every script passes ARGV[1] = the schemas that its release works with, its own first ("2 1"; scripts.accepted), and
-- ARGV[2] = clock override (0 in production; tests pass a clock).
-- Names of keys: queueapp/store/keys.py is the glossary, tests/lua/test_contract.py compares the two.
local P = KEYS[1]
local W -- what the names of the waiting work's structures begin with: P, in odd generations P .. '~' (generations.lua)

local pool

-- Which policy orders the pool, with its parameters, and what it is like (queueapp/policies):
-- tiered, ring, wfq: that one. ordered: every pointer is the least rank below it. ties: ranks may be equal, so that the
-- members of queues and walks begin with the number of submission. kept: the id of the ranks that no row can tell
-- again; a lease remembers them. mirrored: a rule that is not in Lua. Ranks come with `admit`, the walk is kept as that
-- of an order, and a leader chooses (dispatch.lua).
local set_policy, old_generation
do -- a script has 200 local names at most
local RULES = ' tiered ring wfq fifo priority edf aging '
local function set_rule(rule, name, by, step)
  name = name or 'tiered'
  rule.policy, rule.by, rule.step = name, by or 'deadline', tonumber(step or nil) or 60000
  rule.tiered, rule.ring, rule.wfq = name == 'tiered', name == 'ring', name == 'wfq'
  rule.ordered = not rule.tiered and not rule.ring
  rule.mirrored = not string.find(RULES, ' ' .. name .. ' ', 1, true)
  rule.ties = name == 'edf' or name == 'aging' or name == 'wfq' or rule.mirrored
  rule.kept = name == 'aging' and string.format('aging:%.0f', rule.step)
    or name == 'edf' and rule.by == 'latest_start' and 'edf:latest_start'
    or (name == 'wfq' or rule.mirrored) and (pool.gen > 0 and string.format('%s:%.0f', name, pool.gen) or name)
end

function set_policy(name, by, step) set_rule(pool, name, by, step) end

-- What conf tells of the generation before this one, where it still has something (generations.lua).
function old_generation(packed, moved)
  local text, policy, by, step, total, phase, cursor =
    string.match(packed, '^(([^|]+)|([^|]+)|(%d+)|(%d+))|(%a)|(%d+)$')
  local old = {
    text = text, total = tonumber(total), moved = tonumber(moved or nil) or 0, phase = phase, cursor = cursor,
    mark = pool.mark == '' and '~' or '',
  }
  set_rule(old, policy, by, step)
  return old
end
end

do
  local conf = redis.call('HMGET', P .. 'conf', 'schema', 'policy', 'paused', 'max', 'fill', 'unit', 'cost', 'weight',
    'tiers', 'by', 'step', 'keyed', 'floors', 'gen', 'mode', 'leftover',
    'front', 'room', 'once', 'parks', 'old', 'moved', 'cuts', 'rated', 'blocks', 'sweeps')
  if conf[1] and conf[1] ~= ARGV[1] and not string.find(' ' .. ARGV[1] .. ' ', ' ' .. conf[1] .. ' ', 1, true) then
    return {0, 'schema', conf[1]}
  end
  pool = {
    schema = conf[1],
    paused = conf[3] == '1',
    max = not conf[5] and tonumber(conf[4]) or nil, -- a ceiling applies once its slots are back-filled
    track = conf[4] and true or false,              -- slots:p is kept from the moment a ceiling is stored
    unit = conf[6] or 'ms',
    cost = tonumber(conf[7]) or 50,
    weight = tonumber(conf[8]) or 1,
    tiers = conf[9] == '1',                         -- some job of tier continue was enqueued
    keyed = conf[12] == '1',                        -- some job has concurrency keys (keysets.lua)
    floors = (tonumber(conf[13]) or 0) > 0,         -- so many tenants have a guaranteed minimum (floor.lua)
    gen = tonumber(conf[14]) or 0,                  -- generation of the waiting work
    scheduled = conf[15] == 'scheduled',            -- a leader dispatches (ingress.lua, ready.lua), no lease walks
    leftover = conf[16] == '1',                     -- it did, and ingress or ready may still hold something
    front = (tonumber(conf[17]) or 0) > 0,          -- so many tenants, lanes, keys have a rate or a room (front.lua)
    room = tonumber(conf[18] or nil),               -- most waiting jobs
    once = conf[19] == '1',                         -- some job has a singleton or a debounce (once.lua)
    parks = conf[20] == '1',                        -- some job is parked (backlog.lua)
    cuts = conf[23] == '1',                         -- all that waits of some tenant is being cancelled (cut.lua)
    blocks = conf[25] or nil,                        -- own limits have held some work back (blocks.lua)
    sweeps = conf[26] == '1',                       -- some parent is to be looked at again (kin.lua)
    rated = conf[24] == '1',                        -- some tenant, lane or key was given a dispatch rate (rates.lua)
  }
  pool.mark = pool.gen % 2 == 1 and '~' or ''
  W = P .. pool.mark
  set_policy(conf[2], conf[10], conf[11])
  pool.old = conf[21] and old_generation(conf[21], conf[22])
end

-- The member of a queue that stands for a job (of a walk, for a child), and back: the only places that know its form.
local function member_of(id, seq) return pool.ties and seq .. id or id end
local function id_of(member) return pool.ties and string.sub(member, 13) or member end
local function tie_of(member) return pool.ties and string.sub(member, 1, 12) or '' end

-- Continuations stand in queues of their own.
local function has_tiers()
  return pool.tiers and pool.tiered
end

-- Calls `command key member ...` with as many members as Lua can unpack, in chunks.
local function variadic(command, key, members)
  if #members == 0 then return end
  for first = 1, #members, 4000 do
    redis.call(command, key, unpack(members, first, math.min(first + 3999, #members)))
  end
end

-- The same for commands whose arguments are keys only.
local function unlink(keys)
  if #keys == 0 then return end
  for first = 1, #keys, 4000 do
    redis.call('UNLINK', unpack(keys, first, math.min(first + 3999, #keys)))
  end
end

-- Appends one or two values to a list.
local function push(list, a, b)
  list[#list + 1] = a
  if b ~= nil then list[#list + 1] = b end
end

-- The same for the list `t[k]`, which is made when it is not there.
local function append(t, k, a, b)
  t[k] = t[k] or {}
  push(t[k], a, b)
end

-- Rows of the repeated groups at the end of ARGV: `next_group(n, width)` answers the next n rows of `width` fields.
local next_argument = 0
local function next_group(count_, width)
  local rows = {}
  for i = 1, count_ do
    rows[i] = {unpack(ARGV, next_argument, next_argument + width - 1)}
    next_argument = next_argument + width
  end
  return rows
end

-- The order of texts by their bytes, as the server sorts members; Lua's own `<` would follow the server's locale.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The first write of a shard stamps it with the schema of the release that made it. It keeps it until `ductor upgrade`.
local function stamp_schema()
  if not pool.schema then redis.call('HSET', P .. 'conf', 'schema', string.match(ARGV[1], '%S+')) end
end
