-- The front door: what `enqueue` asks of a new job before anything is written, in this order: debounce, singleton,
-- rates, room. `load` reads what a batch needs at once; then the jobs are judged one after the other, in memory, so
-- that the second of two knows of the first; `write` brings it over. A pool without rates, limits of waiting jobs,
-- debounce and singletons never opens it, so that nothing of it is even made.
-- Field `front` of a job, one a line: `p` = park it when it is above a rate; `a` = that, and it needs no room, because
-- it goes on with what was let in before; `u` = that, and its first attempt is used up (newcomers.lua); `d <digest>
-- <period ms> <most ms, 0 = none>` = debounce; `s <digest> <mode> <k or ->` = singleton, with k if the job has the
-- concurrency key that lets the next one wait; what runs while one with mode `replace` comes is told to stop.
local open_front
do -- a script has 200 local names at most
function open_front()
local front = {}
local batch, replaced = {}, {} -- jobs accepted in this call, by their ids; the ids of those that end for them
--- @include "front_debounce"
--- @include "front_singleton"
--- @include "front_limits"

local function parse(j)
  for line in string.gmatch(j.front, '[^\n]+') do
    local kind, digest, a, b = string.match(line, '^(%l) ?(%S*) ?(%S*) ?(%S*)$')
    local key = digest and j.tenant .. '|' .. digest
    if kind == 'p' then j.parks = true end
    if kind == 'a' or kind == 'u' then j.parks, j.admitted = true, true end
    if kind == 'd' then j.debounce = {key = 'deb:' .. key, period = tonumber(a), most = tonumber(b)} end
    if kind == 's' then j.single = {key = 'single:' .. key, mode = a, keyed = b == 'k'} end
  end
end

-- `jobs`: those of the call that may be new.
function front.load(jobs)
  for _, j in ipairs(jobs) do
    if j.front ~= '' then parse(j) end
  end
  bounds.load(jobs)
end

-- Is this call one that the job's window took before?
function front.took(j)
  return j.debounce and debounce.took(j)
end

-- Judges one job after those before it. j.due is its moment, if it is to run later; afterwards j.outcome is nil when it
-- is accepted.
function front.judge(j)
  if j.debounce and debounce.stands_for(j) then return end
  if j.single and singleton.skips(j) then return end
  local leaving = j.instead and #j.instead or 0
  if bounds.refuse(j, leaving) then return end
  bounds.take(j, leaving)
  batch[j.id], j.holds = j, {}
  if j.debounce then debounce.open(j) end
  if j.single then singleton.take(j) end
end

-- After the rows and places of the accepted jobs. Waiting jobs that are replaced end here, those of this very call as
-- well. True when something of waiting jobs changed.
function front.write(accepted)
  bounds.write()
  local renewed = debounce.write()
  singleton.write()
  for _, j in ipairs(accepted) do
    if j.holds and #j.holds > 0 then once.hold(j.id, j.holds) end
  end
  for _, id in ipairs(replaced) do
    local row, state, run = waiting_row(id)
    leave_waiting(id, row, state, run)
    to_ended(id, 'replaced', not run and identity(row) or nil, row.keys)
  end
  return renewed
end
return front
end
end
