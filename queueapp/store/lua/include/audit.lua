-- The recount behind `verify`: what stands in the shard, key by key. KEYS is allowed here and nowhere else: `verify` is
-- for tests and a quiet shard.
local problems = {}

local function report(text, ...)
  if #problems < 50 then push(problems, string.format(text, ...)) end
end

-- All keys of the shard by kind: kind → {part after the colon → key}.
local found = {}
local KINDS = {}
for kind in string.gmatch('job run result errors data lanes q qc ltags dead deadgroup slots idem worker '
  .. 'held done served heads blocked turns flushed bl blc single deb gcra '
  .. 'stop nudge checkpoint erased children open', '%S+') do
  KINDS[kind] = true
  found[kind] = {}
end
local SINGLE = {}
for name in string.gmatch('walk floor heads tags policy conf limits active scheduled expiring dead deadgroups ended '
  .. 'counts stats tasks names est wake wake:standby workers watched waiters leader fence quarantine tenants '
  .. 'sublanes parked waitkeys keysets keynames keyusers marks ready ingress entered corrections wake:leader '
  .. 'backlog blturns blcturns once blocks timers cuts moving stubs waiting parents outbox sweeps', '%S+') do
  SINGLE[name] = true
end
local IN_LINE = {} -- those of the waiting work, whose names begin with the mark of their generation
for name in string.gmatch('walk floor heads lanes q qc tags ltags policy '
  .. 'sublanes parked blocked turns waitkeys', '%S+') do
  IN_LINE[name] = true
end
local older = {} -- those of the generation before: name → true
for _, key_ in ipairs(redis.call('KEYS', P .. '*')) do
  local mark, name = string.match(key_, '^(~?)(.*)$', #P + 1)
  local kind, rest = string.match(name, '^(%a+):(.+)$')
  local in_line = IN_LINE[kind or name]
  if in_line and pool.old and mark == pool.old.mark then
    older[name] = true
  elseif mark ~= (in_line and pool.mark or '') then
    report('stray key %s%s', mark, name)
  elseif SINGLE[name] then
    -- a key of its own
  elseif kind and KINDS[kind] then
    found[kind][rest] = key_
  else
    report('stray key %s', name)
  end
end

local function members(set)
  return redis.call('ZRANGE', (IN_LINE[string.match(set, '^%a+')] and W or P) .. set, 0, -1)
end

-- id → the one index in which it stands.
local place, queued, placed, tiers, pointers = {}, {}, {}, {}, {}
local function stands(id, index)
  if place[id] then report('%s stands in %s and in %s', id, place[id], index) end
  place[id] = index
end
for _, tier in ipairs({'q', 'qc'}) do
  for name in pairs(found[tier]) do
    local listed = redis.call('ZRANGE', W .. tier .. ':' .. name, 0, -1, 'WITHSCORES')
    for i = 1, #listed, 2 do
      local id = id_of(listed[i])
      if string.sub(id, 1, 1) == '@' then -- a sub-lane
        pointers[tier .. ':' .. name .. '|' .. id] = {listed[i], listed[i + 1]}
      else
        stands(id, 'p')
        queued[id], placed[id], tiers[id] = name, tie_of(listed[i]), tier
      end
    end
  end
end
--- @include "audit_old"
local CODES = {
  scheduled = 's', backlog = 'b', ready = 'r', active = 'a', moving = 'm', dead = 'd', ended = 'e',
  stubs = 'e', waiting = 'w',
}
for index, code in pairs(CODES) do
  for _, id in ipairs(members(index)) do
    stands(id, code)
    if code == 'e' and (redis.call('HGET', P .. 'run:' .. id, 'o') == 'moved') ~= (index == 'stubs') then
      report('%s stands in %s, but not by its outcome', id, index)
    end
  end
end

-- Jobs with an entry in ingress. Entries of jobs that have left it stay until somebody admits them.
local has_entry = {}
for _, entry in ipairs(redis.call('XRANGE', P .. 'ingress', '-', '+')) do
  local id = string.match(entry[2][2] or '', '^([^|]+)|')
  if id then has_entry[id] = true end
end

-- Every row names the index in which it stands. `info[id]` = {t, l, state, run, row}.
local info = {}
local ids = {}
for id in pairs(place) do ids[id] = true end
for id in pairs(found.job) do ids[id] = true end
for id in pairs(found.run) do ids[id] = true end
for id in pairs(ids) do
  local row = found.job[id] and read_row(id)
  local run = found.run[id] and read_run(id)
  local state = row and row.state ~= 'h' and not run and row.state or (run and run.s)
  if row and row.state ~= 'h' and run and run.s ~= 'a' and run.s ~= 'r' then
    report('%s has a hash in state %s but its row says %s', id, run.s, row.state)
  end
  if state == 'i' and not place[id] and has_entry[id] then place[id] = 'i' end
  if not state then
    report('%s stands in %s without a readable row', id, tostring(place[id]))
  elseif place[id] ~= state then
    report('%s is in state %s but stands in %s', id, state, tostring(place[id]))
  end
  if state ~= 'e' and not row then report('%s in state %s has no row', id, tostring(state)) end
  if state == 'e' and found.job[id] then report('%s has ended but keeps its row', id) end
  local t, l = row and row.tenant or run and run.t, row and row.lane or run and run.l
  local ks = row and row.keys
  if state == 'p' and queued[id] and queued[id] ~= t .. '|' .. l .. (ks and '|@' .. ks or '') then
    report('%s of %s|%s stands in %s', id, t, l, queued[id])
  end
  if state == 'p' and row and tonumber(row.seq, 16) == 0 then report('%s is pending without a place', id) end
  if state == 'p' and row and placed[id] and placed[id] ~= '' and placed[id] ~= row.seq then
    report('%s stands at %s, its row says %s', id, tostring(placed[id]), row.seq)
  end
  info[id] = {t = t, l = l, state = state, run = run, row = row}
end
for _, kind in ipairs({'result', 'errors', 'data', 'checkpoint'}) do
  for id in pairs(found[kind]) do
    if not ids[id] then report('%s:%s has no job', kind, id) end
  end
end
