-- The front door: what `enqueue` asks of a new job before anything is written, in this order: debounce, singleton,
-- rates, room. `load` reads what a batch needs at once; then the jobs are judged one after the other, in memory, so
-- that the second of two knows of the first; `write` brings it over. A pool without rates, limits of waiting jobs,
-- debounce and singletons never opens it, so that nothing of it is even made.
-- Field `front` of a job, one a line: `p` = park it when it is above a rate; `d <digest> <period ms> <most ms, 0 =
-- none>` = debounce; `s <digest> <mode> <k or ->` = singleton, with k if the job has the concurrency key that lets the
-- next one wait. Field `ft:<tenant>`, `fl:<tenant>|<lane>`, `fk:<pattern>` of `limits`: `rate|period|burst|room`.
local open_front
do -- a script has 200 local names at most
function open_front()
local front = {}
--- @include "gcra"
local DRAIN_MOST_MS, DRAIN_LEAST_MS = 300000, 1000
local rules, room = {}, {}           -- scope → rate; tenant → most waiting jobs
local windows, singles, batch, gone = {}, {}, {}, {}
local replaced, renewed, changed = {}, {}, {windows = {}, singles = {}}
local waiting_, paces = {}, {}       -- '' (the pool) and tenants → waiting jobs with those of this call; jobs started

local function parse(j)
  for line in string.gmatch(j.front, '[^\n]+') do
    local kind, digest, a, b = string.match(line, '^(%l) ?(%S*) ?(%S*) ?(%S*)$')
    local key = digest and j.tenant .. '|' .. digest
    if kind == 'p' then j.parks = true end
    if kind == 'd' then j.debounce = {key = 'deb:' .. key, period = tonumber(a), most = tonumber(b)} end
    if kind == 's' then j.single = {key = 'single:' .. key, mode = a, keyed = b == 'k'} end
  end
end

local function parse_rule(scope, tenant, packed)
  local rate, period, burst, most = string.match(packed or '', '^(%d*)|(%d*)|(%d*)|(%d*)$')
  if rate and rate ~= '' then
    rules[scope] = {rate = tonumber(rate), period = tonumber(period), burst = tonumber(burst)}
  end
  if most and most ~= '' then room[tenant] = tonumber(most) end
end

-- Scopes of a job that may have a rate: {scope, field of `limits`}.
local function scopes_of(j)
  local found = {
    {'t:' .. j.tenant, 'ft:' .. j.tenant},
    {'l:' .. j.tenant .. '|' .. j.lane, 'fl:' .. j.tenant .. '|' .. j.lane},
  }
  for digest, pattern in string.gmatch(j.keys, '\n(%S+) %d+ (%S+)') do
    push(found, {'k:' .. digest, 'fk:' .. pattern})
  end
  return found
end

local function load_rules(jobs)
  local fields, scopes, seen = {}, {}, {}
  for _, j in ipairs(jobs) do
    j.scopes = scopes_of(j)
    for _, s in ipairs(j.scopes) do
      if not seen[s[1]] then
        seen[s[1]] = true
        push(fields, s[2])
        push(scopes, {s[1], j.tenant})
      end
    end
  end
  for first = 1, #fields, 4000 do
    local last = math.min(first + 3999, #fields)
    for i, packed in ipairs(redis.call('HMGET', P .. 'limits', unpack(fields, first, last))) do
      local s = scopes[first + i - 1]
      parse_rule(s[1], s[2], packed)
    end
  end
  gcra.load(rules)
end

local function load_waiting_(jobs)
  local names, seen = {}, {}
  for _, j in ipairs(jobs) do
    if room[j.tenant] and not seen[j.tenant] then
      seen[j.tenant] = true
      push(names, j.tenant)
    end
  end
  if #names > 0 then
    for i, n in ipairs(redis.call('ZMSCORE', P .. 'tenants', unpack(names))) do
      waiting_[names[i]] = tonumber(n or nil) or 0
    end
  end
  if pool.room then waiting_[''] = tonumber(redis.call('HGET', P .. 'counts', 'w') or 0) end
end

-- `jobs`: those of the call that may be new.
function front.load(jobs)
  for _, j in ipairs(jobs) do
    if j.front ~= '' then parse(j) end
  end
  if pool.front then load_rules(jobs) end
  load_waiting_(jobs)
end

-- -- debounce ---------------------------------------------------------------------------------------------------------

-- The waiting job of a window, if it may still be changed to what `j` is: one of this call, or {row, state}.
local function changeable(id, j)
  if gone[id] then return nil end
  if batch[id] then return batch[id] end
  local row = read_row(id)
  if not row or read_run(id) then return nil end -- leased once, or about to be
  local keys = j.keys ~= '' and string.match(j.keys, '^[^\n]+') or nil
  local free = row.state == 's' or row.state == 'b'
  if not free and not ((row.state == 'p' or row.state == 'i') and row.keys == keys) then return nil end
  return {row = row, state = row.state}
end

local function window_of(key)
  local w = windows[key]
  if not w then
    local found = redis.call('HMGET', P .. key, 'job', 'req', 'first')
    w = {job = found[1], req = found[2], first = tonumber(found[3] or nil)}
    windows[key] = w
  end
  return w
end

-- When the job of a window runs, after a call now. `due` is what the call itself asks for, or nil.
local function due_in(d, first, due)
  local moment = now + d.period
  if d.most > 0 then moment = math.min(moment, first + d.most) end
  return math.max(moment, due or 0)
end

-- True when an earlier job stands for j.
local function debounced(j)
  local d = j.debounce
  local w = window_of(d.key)
  if w.job and w.req == j.id then
    j.outcome, j.stands_for = 'debounced', w.job
    return true
  end
  local target = w.job and changeable(w.job, j)
  if not target then
    j.due = due_in(d, now, j.due)
    return false
  end
  j.outcome, j.stands_for = 'debounced', w.job
  local due = due_in(d, w.first, j.due)
  if target.row then
    target = renewed[w.job] or target
    renewed[w.job], target.j, target.due = target, j, due
  else
    target.payload, target.keys, target.due = j.payload, j.keys, target.parked and math.max(target.due, due) or due
  end
  w.req = j.id
  changed.windows[d.key] = w
  return true
end

-- -- singleton --------------------------------------------------------------------------------------------------------

-- Does a job with this row let the next one with this singleton wait for it?
local function has_key(row, digest)
  for _, key in ipairs(row and row.keys and keyset(row.keys) or {}) do
    if key.digest == digest then return true end
  end
  return false
end

local function holders_of(key)
  local found = singles[key]
  if not found then
    found = {}
    for _, id in ipairs(once.holders(key)) do
      local row, run = read_row(id), read_run(id)
      local state = run and run.s or row and row.state
      push(found, {id = id, runs = state == 'a', keyed = has_key(row, string.match(key, '|(.+)$'))})
    end
    singles[key] = found
  end
  return found
end

-- True when the job is not to be, because another stands for it. Else `j.instead` are those that it replaces.
local function skipped(j)
  local s, waits, runs = j.single, {}, nil
  for _, holder in ipairs(holders_of(s.key)) do
    if holder.runs then runs = holder else push(waits, holder) end
  end
  local stands_for = waits[1] or runs
  local beside = not runs or (runs.keyed and s.keyed)
  local enters = not stands_for or (s.mode == 'replace' and beside) or (s.mode == 'next' and #waits == 0 and beside)
  if not enters then
    j.outcome, j.stands_for = 'skipped', stands_for.id
    return true
  end
  j.instead, j.runs = waits, runs
  return false
end

-- -- rates and room ---------------------------------------------------------------------------------------------------

-- How long a tenant ('' = the pool) needs until so many of its jobs have started, by what started in this minute and
-- the last.
local function drain_ms(t, excess)
  local minute, window, started = math.floor(now / 60000), now % 60000, paces[t]
  if not started then
    started = 0
    for back = 0, 1 do
      local packed = redis.call('HGET', string.format('%sserved:%.0f', P, minute - back), t == '' and '|' or t)
      started = started + math.max(0, tonumber(string.match(packed or '', '^[^|]*|(%-?%d+)') or 0))
    end
    paces[t] = started
  end
  if started == 0 then return DRAIN_MOST_MS end
  local wait = math.ceil(excess * (window + 60000) / started)
  return math.max(DRAIN_LEAST_MS, math.min(DRAIN_MOST_MS, wait))
end

-- True when there is no room. `gone` = jobs of the tenant that leave for this one.
local function full(j, gone)
  local wait = nil
  for t, most in pairs({[''] = pool.room, [j.tenant] = room[j.tenant]}) do
    local excess = waiting_[t] - gone + 1 - most
    if excess > 0 then wait = math.max(wait or 0, drain_ms(t, excess)) end
  end
  if not wait then return false end
  j.outcome, j.retry_after = 'backlog_full', wait
  return true
end

local function throttled(j)
  local moment = now
  for _, s in ipairs(j.scopes or {}) do
    if rules[s[1]] then moment = math.max(moment, gcra.moment(s[1])) end
  end
  if moment <= now then return false end
  if not j.parks then
    j.outcome, j.retry_after = 'throttled', moment - now
    return true
  end
  j.parked, j.due = true, math.max(moment, j.due or 0)
  return false
end

-- Judges one job after those before it. j.due is its moment, if it is to run later; afterwards j.outcome is nil when it
-- is accepted.
function front.judge(j)
  if j.debounce and debounced(j) then return end
  if j.single and skipped(j) then return end
  if throttled(j) then return end
  if full(j, j.instead and #j.instead or 0) then return end
  for _, s in ipairs(j.scopes or {}) do
    if rules[s[1]] then gcra.take(s[1]) end
  end
  batch[j.id], j.holds = j, {}
  if j.debounce then
    local w = {job = j.id, req = j.id, first = now, opened = true}
    windows[j.debounce.key], changed.windows[j.debounce.key] = w, w
    push(j.holds, j.debounce.key)
  end
  if j.single then
    local key, mine = j.single.key, {id = j.id, keyed = j.single.keyed}
    for _, holder in ipairs(j.instead) do
      push(replaced, holder.id)
      gone[holder.id] = true
    end
    singles[key] = j.runs and {j.runs, mine} or {mine}
    changed.singles[key] = singles[key]
    push(j.holds, key)
  end
  for t, n in pairs(waiting_) do
    if t == '' or t == j.tenant then waiting_[t] = n + 1 - (j.instead and #j.instead or 0) end
  end
end

-- -- what is written --------------------------------------------------------------------------------------------------

-- A job that waits has other arguments from now on, and, unless it is in line already, another moment.
local function renew(id, target)
  local row, j, header = target.row, target.j, nil
  header = string.match(redis.call('GETRANGE', P .. 'job:' .. id, 0, 399), '^[^\n]*')
  local keys = j.keys ~= '' and new_keys(j.keys) or nil
  if row.keys then use_keys(row.keys, -1) end
  local place_, rest, fingerprint = string.match(header, '^(.1%x%x%x%x%x%x%x%x%x%x%x%x%d+)%+?%d*(|.*|)[^|]*(|[^|]*)$')
  local delay = row.delay
  if target.state == 's' or target.state == 'b' then
    local set = target.state == 's' and 'scheduled' or 'backlog'
    local stands = tonumber(redis.call('ZSCORE', P .. set, id))
    local due = target.state == 's' and target.due or math.max(stands, target.due)
    if target.state == 's' then to_scheduled(id, due) else backlog.enter(id, row.tenant, row.tier, due) end
    delay = math.max(0, due - tonumber(row.submitted))
  end
  local first = place_ .. (delay and string.format('+%.0f', delay) or '')
  redis.call('SET', P .. 'job:' .. id, first .. rest .. (keys or '') .. fingerprint .. '\n' .. j.payload)
end

-- After the rows and places of the accepted jobs. Jobs that are replaced end here, those of this very call, too. True
-- when something of waiting jobs changed.
function front.write(accepted)
  gcra.write()
  for key, w in pairs(changed.windows) do
    redis.call('HSET', P .. key, 'job', w.job, 'req', w.req, 'first', string.format('%.0f', w.first))
    if w.opened then redis.call('PERSIST', P .. key) end
  end
  for key, list in pairs(changed.singles) do
    local ids = {}
    for i, holder in ipairs(list) do ids[i] = holder.id end
    redis.call('SET', P .. key, table.concat(ids, ' '))
  end
  for _, j in ipairs(accepted) do
    if j.holds and #j.holds > 0 then once.hold(j.id, j.holds) end
  end
  for id, target in pairs(renewed) do renew(id, target) end
  for _, id in ipairs(replaced) do
    local row, state, run = waiting_row(id)
    leave_waiting(id, row, state, run)
    to_ended(id, 'replaced', not run and identity(row) or nil, row.keys)
  end
  return next(renewed) ~= nil
end
return front
end
end
