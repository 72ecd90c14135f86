-- Debounce, as the front door asks it: a call within the window of an earlier one changes the job that waits, and is
-- none itself. Keys: once.lua.
local debounce = {}
do -- a script has 200 local names at most
local REMEMBERED = 8 -- calls that a window took, so that one of them that is repeated changes nothing
local windows, changed, renewed = {}, {}, {}

-- The waiting job of a window, if it may still be changed to what `j` is: one of this call, or {row, state}.
local function changeable(id, j)
  if replaced[id] then return nil end
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
    local found = redis.call('HMGET', P .. key, 'job', 'first', 'n', 'r0', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7')
    w = {job = found[1], first = tonumber(found[2] or nil), n = tonumber(found[3] or nil) or 0, took = {}, added = {}}
    for i = 4, 3 + REMEMBERED do
      if found[i] then w.took[found[i]] = true end
    end
    windows[key] = w
  end
  return w
end

local function remember(key, w, id)
  w.took[id], changed[key] = true, w
  push(w.added, 'r' .. string.format('%.0f', w.n % REMEMBERED), id)
  w.n = w.n + 1
end

-- When the job of a window runs, after a call now. `due` is what the call itself asks for, or nil.
local function due_in(d, first, due)
  local moment = now + d.period
  if d.most > 0 then moment = math.min(moment, first + d.most) end
  return math.max(moment, due or 0)
end

function debounce.took(j)
  return window_of(j.debounce.key).took[j.id] or false
end

-- True when an earlier job stands for j.
function debounce.stands_for(j)
  local d = j.debounce
  local w = window_of(d.key)
  if w.took[j.id] then
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
  remember(d.key, w, j.id)
  return true
end

-- The accepted job opens a window. Calls that the one before it took are still remembered.
function debounce.open(j)
  local key = j.debounce.key
  local w = window_of(key)
  w.job, w.first, w.opened = j.id, now, true
  remember(key, w, j.id)
  push(j.holds, key)
end

-- A job that waits has other arguments from now on, and, unless it is in line already, another moment.
local function renew(id, target)
  local row, j, header = target.row, target.j, nil
  header = string.match(redis.call('GETRANGE', P .. 'job:' .. id, 0, 399), '^[^\n]*')
  local keys = j.keys ~= '' and new_keys(j.keys) or nil
  if row.keys then use_keys(row.keys, -1) end
  local place_, rest, fingerprint =
    string.match(header, '^(.1%x%x%x%x%x%x%x%x%x%x%x%x%d+)%+?%d*(@?%-?%d*|.*|)[^|]*(|[^|]*)$')
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

-- True when a waiting job changed.
function debounce.write()
  for key, w in pairs(changed) do
    redis.call('HSET', P .. key, 'job', w.job, 'first', string.format('%.0f', w.first), 'n', w.n,
      unpack(w.added, math.max(1, #w.added - 2 * REMEMBERED + 1)))
    if w.opened then redis.call('PERSIST', P .. key) end
  end
  for id, target in pairs(renewed) do renew(id, target) end
  return next(renewed) ~= nil
end
end
