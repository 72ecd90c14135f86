-- What a job holds for as long as it has not ended: the key of its singleton, and the window of its debounce.
--   once                  HASH    job id → the names of the keys below that it is in, one a line
--   single:<t>|<digest>   STRING  ids of the jobs that hold a singleton, at most two: one that runs and the next
--   deb:<t>|<digest>      HASH    job, first (moment of the first call), n (how many calls it took), r0..r7 (ids of the
--                                 last ones, in turn)
--   conf once             some job stands in `once`; without it no script looks for any of it
-- The one place where jobs end is `write_moves`: it gives back what they held, and only what they hold still. A dead
-- letter remembers its singleton (run hash, field u), which a redrive takes again.
local once = {}
do -- a script has 200 local names at most
local REPLAY_MS = 60000 -- the window of a job that ended answers repeats of its last calls for so long

-- The ids that hold a singleton.
function once.holders(key)
  local ids = {}
  for id in string.gmatch(redis.call('GET', P .. key) or '', '%S+') do push(ids, id) end
  return ids
end

-- `keys`: what a new job holds from now on.
function once.hold(id, keys)
  redis.call('HSET', P .. 'once', id, table.concat(keys, '\n'))
  if not pool.once then
    redis.call('HSET', P .. 'conf', 'once', 1)
    pool.once = true
  end
end

-- A dead letter shall run again: does it get its singleton back?
function once.hold_again(id)
  local key = redis.call('HGET', P .. 'run:' .. id, 'u')
  if not key then return true end
  if #once.holders(key) > 0 then return false end
  redis.call('SET', P .. key, id)
  redis.call('HDEL', P .. 'run:' .. id, 'u')
  once.hold(id, {key})
  return true
end

local function release(id, key, died)
  if string.sub(key, 1, 4) == 'deb:' then
    if redis.call('HGET', P .. key, 'job') == id then redis.call('PEXPIRE', P .. key, REPLAY_MS) end
    return
  end
  local others = {}
  for _, holder in ipairs(once.holders(key)) do
    if holder ~= id then push(others, holder) end
  end
  if #others > 0 then
    redis.call('SET', P .. key, table.concat(others, ' '))
  else
    redis.call('DEL', P .. key)
  end
  if died then redis.call('HSET', P .. 'run:' .. id, 'u', key) end
end

-- Jobs that ended in this call; `died`: those of them that are dead letters.
function once.give_up(ids, died)
  if not pool.once or #ids == 0 then return end
  local gone = {}
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    for i, packed in ipairs(redis.call('HMGET', P .. 'once', unpack(ids, first, last))) do
      local id = ids[first + i - 1]
      if packed then
        for key in string.gmatch(packed, '[^\n]+') do release(id, key, died[id]) end
        push(gone, id)
      end
    end
  end
  variadic('HDEL', P .. 'once', gone)
  if #gone > 0 and redis.call('EXISTS', P .. 'once') == 0 then
    redis.call('HDEL', P .. 'conf', 'once')
    pool.once = false
  end
end
end
