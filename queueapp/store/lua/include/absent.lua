-- Workers whose death shows: those of `watched` had a subscription when they registered (presence.lua). Whose channel
-- has no subscriber is noted as absent; who is absent still after a quarter of a second is lost, and so are its leases.
-- Should it live after all, the fences refuse what it says about them. Every call of a worker, and every registration,
-- takes the note away.
local recover_absent, strike
do -- a script has 200 local names at most
local ABSENT_MS = 250
local PAGE = 64

-- {worker, channel, absent since or ''} of the next of `watched`, in the order of their names.
local function page_of(after)
  local page = {}
  local from = after == '' and '-' or '(' .. after
  for _, worker in ipairs(redis.call('ZRANGEBYLEX', P .. 'watched', from, '+', 'LIMIT', 0, PAGE)) do
    local known = redis.call('HMGET', P .. 'worker:' .. worker, 'channel', 'absent')
    push(page, {worker, known[1] or '', known[2] or ''})
  end
  return page
end

-- The leases of `worker` → pending, dead, ended, as if they had run out; at most `limit`. Answers whether that is all.
-- Those that this very call met before are not in state a any more, or, with a row that nobody can read, not in active.
local function recover_held(worker, limit, counts_)
  local ids = redis.call('SMEMBERS', P .. 'held:' .. worker)
  for i, id in ipairs(ids) do
    if i > limit then return false end
    local run = read_run(id)
    local holds = run and run.s == 'a' and run.w == worker
    local row = holds and read_row(id)
    if row then
      local word = recover(run, row)
      counts_[word] = counts_[word] + 1
    elseif holds and redis.call('ZSCORE', P .. 'active', id) then
      quarantine('active', id)
      end_lease(run)
    end
  end
  return true
end

-- Answers the workers that are lost, the last one looked at ('' = all), and whether another call would find more.
function recover_absent(witness, after, limit, counts_)
  local page = witness ~= '' and page_of(after) or {}
  if #page == 0 then return {}, '', false end
  local channels = {witness}
  for _, w in ipairs(page) do push(channels, w[2]) end
  local found = presence.subscribers(channels)
  -- A server on which nobody hears the witness says nothing about the others.
  if (found[witness] or 0) < 1 then return {}, '', false end
  local gone = {}
  for _, w in ipairs(page) do
    local worker, channel, since = w[1], w[2], tonumber(w[3])
    if channel == '' then
      push(gone, worker) -- its registration has expired; what it holds ends by its deadline
    elseif found[channel] == 0 and not since then
      redis.call('HSET', P .. 'worker:' .. worker, 'absent', now)
    elseif found[channel] == 0 and now - since >= ABSENT_MS then
      local done = counts_.pending + counts_.dead + counts_.cancelled
      if done >= limit or not recover_held(worker, limit - done, counts_) then return gone, after, true end
      push(gone, worker)
    elseif found[channel] ~= 0 and since then
      redis.call('HSET', P .. 'worker:' .. worker, 'absent', '')
    end
    after = worker
  end
  local more = #page == PAGE
  return gone, more and after or '', more
end

-- Lost workers are neither watched nor shown any more. Their mark stays, so that no late call of theirs passes as new.
function strike(gone)
  variadic('ZREM', P .. 'watched', gone)
  variadic('ZREM', P .. 'workers', gone)
  if #gone > 0 then count('workers_lost', #gone) end
end
end
