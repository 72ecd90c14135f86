--- @include "ingress"
-- A new place in line, for what waited elsewhere: for its time, as a dead letter, in another pool, for its children.
local place_anew
do -- a script has 200 local names at most
-- A job with a new place in line, of number `seq`: due, or redriven. `run` is its hash, if it has one; its waiting
-- counts from `ready` on; `spent`: waited.lua.
function place_anew(id, row, run, seq, ready, spent)
  local code = pool.scheduled and 'i' or 'p'
  local fields, stood = {'s', code}, nil
  if run then
    waited.comes(run, row, fields, spent, pool.scheduled)
    redis.call('HSET', P .. 'run:' .. id, unpack(fields))
  elseif pool.blocks then
    stood = waited.stands(row, pool.scheduled)
  end
  if stood and stood > 0 then
    waited.remember(id, code, hex(seq), stood)
  else
    write_place(id, run and 'h' or code, hex(seq))
  end
  if pool.scheduled then return to_ingress(id, row, seq, ready) end
  to_pending(id, row.tenant, row.lane, row.tier, rank(row, seq, ready), hex(seq), row.keys)
end
end
