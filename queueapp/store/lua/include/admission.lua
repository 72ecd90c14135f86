--- @include "ingress"
-- Ingress → pending: by a leader (`admit`), and, after a change to direct dispatch (conf `leftover`), by the workers'
-- own calls and `promote_due` in bounded shares, so that what a leader left behind waits for no leader.
local admit_entries, absorb
do -- a script has 200 local names at most
-- A row that is there and cannot be read is set aside, unless this is a repeat; one that is gone has ended.
local function set_aside_unreadable(entry, id)
  if redis.call('EXISTS', P .. 'job:' .. id) == 0 then return end
  local found, run = redis.call('XRANGE', P .. 'ingress', entry, entry)[1], read_run(id)
  if not found then return end
  local t = string.match(found[2][2] or '', '^[^|]+|([^|]+)|')
  set_aside(id, true, t, run and run.k)
end

-- Ingress → pending, for each of {entry, id, rank}; id '' = an entry that nobody can read. `rank` counts only where
-- Lua does not know the policy's own. Whatever became of the job, its entry goes.
function admit_entries(entries)
  local done, admitted, duplicates, garbled = {}, 0, 0, 0
  for _, e in ipairs(pool.mirrored and entries or {}) do -- before anything is written
    local r = tonumber(e[3]) or 0
    if r - r ~= 0 then error({err = 'ERR the rank of ' .. e[2] .. ' is not a finite number'}) end
  end
  for _, e in ipairs(entries) do
    local entry, id, given = e[1], e[2], tonumber(e[3])
    push(done, entry)
    if id == '' then
      garbled = garbled + 1
    else
      local row, state, run = waiting_row(id)
      if state == 'i' then
        if run then read_history(run) end
        local standing = row.keys and pool.blocks and waited.stands(row) - waited.stands(row, true) or 0
        if run then
          local ue = standing > 0 and {'ue', (run.ue or 0) + standing} or {}
          redis.call('HSET', P .. 'run:' .. id, 's', 'p', unpack(ue))
        elseif standing > 0 then
          waited.remember(id, 'p', row.seq, (row.stood or 0) + standing)
        else
          redis.call('SETRANGE', P .. 'job:' .. id, 0, 'p')
        end
        if not row.cost then push(reach, row.tenant) end
        local seq = tonumber(row.seq, 16)
        local r = pool.mirrored and (given or seq) or rank(row, seq, ready_of(row, run))
        to_pending(id, row.tenant, row.lane, row.tier, r, row.seq, row.keys)
        admitted = admitted + 1
      else
        if not row then set_aside_unreadable(entry, id) end
        duplicates = duplicates + 1
      end
    end
  end
  local gone = 0
  for first = 1, #done, 4000 do
    local last = math.min(first + 3999, #done)
    redis.call('XACK', P .. 'ingress', 'leader', unpack(done, first, last))
    gone = gone + redis.call('XDEL', P .. 'ingress', unpack(done, first, last))
  end
  -- A repeat, whose entries went before, counts nothing.
  local unread = math.min(garbled, gone - admitted)
  for stat, n in pairs({admitted = admitted, garbled = unread, duplicates = gone - admitted - unread}) do
    if n > 0 then count(stat, n) end
  end
  return admitted, duplicates, garbled
end

-- A share of what a leader left behind when the pool went over to direct dispatch. When nothing is left, not in
-- `ready` either, nobody looks any more.
function absorb(limit)
  if not pool.leftover or pool.scheduled then return end
  local entries = {}
  for i, found in ipairs(redis.call('XRANGE', P .. 'ingress', '-', '+', 'COUNT', limit)) do
    local id = found[2][1] == 'j' and string.match(found[2][2], '^([^|]+)|[^|]+|')
    entries[i] = {found[1], id or ''}
  end
  if #entries > 0 then
    admit_entries(entries)
  elseif redis.call('EXISTS', P .. 'ready') == 0 then
    redis.call('HDEL', P .. 'conf', 'leftover')
    unlink({P .. 'ingress', P .. 'entered', P .. 'corrections'})
    pool.leftover = false
  end
end
end
