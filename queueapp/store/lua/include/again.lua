--- @include "ingress"
-- Back into line: a job that was leased or dispatched and is given back, recovered or withdrawn keeps its place. Where
-- only a leader knows the ranks, and this policy gave the job none because it was taken under another, it goes to
-- ingress, to be ranked as what moves over is (moving.lua).
local place_again
do -- a script has 200 local names at most

-- `fields` of its hash are written with its state; `spent`: waited.lua.
function place_again(id, row, run, fields, spent)
  local unranked = pool.mirrored and pool.scheduled and not old_rank(run)
  push(fields, 's', unranked and 'i' or 'p')
  waited.comes(run, row, fields, spent, unranked)
  redis.call('HSET', P .. 'run:' .. id, unpack(fields))
  hash_holds_state(id)
  if unranked then
    to_ingress(id, row, tonumber(row.seq, 16), ready_of(row, run))
  else
    to_pending(id, run.t, run.l, row.tier, old_rank(run, row), row.seq, row.keys)
  end
end
end
