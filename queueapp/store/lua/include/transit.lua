-- A job between two pools: in state m in the one that it left (`moving`), until the other one has it. Its run hash:
-- mv where it goes, hp the number of this departure, us what it had waited for its limits, cx when somebody cancelled
-- it on its way, bk when an operator asked for it back. Once it has gone a stub is left, an ended row of outcome moved
-- in `stubs` instead of `ended`, so that retention leaves it as long as there is something to which it leads.
local LATE_MS = 30000 -- a pack is good for so long: less than an ended row stays
local RIPE_MS = 45000 -- so long after a job was asked back, every pack from before is late there, clocks that step too

local STUB_KEYS = {'errors:', 'data:'} -- what goes along, besides the row

-- Does this shard have the job by this departure or a later one, or had it until it was erased (erase.lua)? `left`: it
-- has what an earlier one left here.
local function has_come(id, hop)
  local v = redis.call('HMGET', P .. 'run:' .. id, 's', 'o', 'hp')
  local left = v[1] == 'e' and v[2] == 'moved'
  local older = left and tonumber(v[3] or nil) and tonumber(v[3]) < hop
  return v[1] and not older or redis.call('EXISTS', P .. 'job:' .. id, P .. 'erased:' .. id) > 0, left
end
