--- @include "stopping"
-- Singletons, as the front door asks them: who holds one, and whether the next may come, wait or take over. Keys:
-- once.lua.
local singleton = {}
do -- a script has 200 local names at most
local held, changed, lost, stopped = {}, {}, {}, {} -- key → who holds it; `lost`: ids that hold one and cannot be read

-- Does a job with this row let the next one with this singleton wait for it?
local function has_key(row, digest)
  for _, key in ipairs(row and row.keys and keyset(row.keys) or {}) do
    if key.digest == digest then return true end
  end
  return false
end

-- A job that cannot be read holds nothing, unless it runs: where its index meets it, it is set aside.
local function holders_of(key)
  local found = held[key]
  if found then return found end
  found = {}
  for _, id in ipairs(once.holders(key)) do
    local row, state, run = waiting_row(id)
    if not row then
      run = read_run(id)
      state = run and run.s == 'a' and 'a'
    end
    if state == 'a' or WAITING[state] then
      push(found, {id = id, run = run, runs = state == 'a', keyed = has_key(row, string.match(key, '|(.+)$'))})
    else
      append(lost, key, id)
    end
  end
  held[key] = found
  return found
end

-- True when the job is not to be, because another stands for it. Else `j.instead` are those that it replaces.
function singleton.skips(j)
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

-- The accepted job holds it from now on.
function singleton.take(j)
  local key, mine = j.single.key, {id = j.id, keyed = j.single.keyed}
  for _, holder in ipairs(j.instead) do
    push(replaced, holder.id)
    replaced[holder.id] = true
  end
  if j.runs and j.single.mode == 'replace' then push(stopped, j.runs.run) end
  held[key] = j.runs and {j.runs, mine} or {mine}
  changed[key] = held[key]
  push(j.holds, key)
end

function singleton.write()
  for key, list in pairs(changed) do
    local ids = {}
    for i, holder in ipairs(list) do ids[i] = holder.id end
    redis.call('SET', P .. key, table.concat(ids, ' '))
    for _, id in ipairs(lost[key] or {}) do push(moves.ended, id) end -- it holds nothing, and nobody waits for it
  end
  stop_running(stopped)
end
end
