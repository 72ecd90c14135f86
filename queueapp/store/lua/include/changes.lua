-- What a leader must hear of that chooses the lanes itself, because its policy is not in Lua (pool.mirrored): which
-- lanes and tenants entered or left the walk, have another first job or another weight. ZSET entered: <tenant>|<lane>,
-- and <tenant>| of a tenant itself, in the order of the change (`marks` entered). `admit` and `dispatch` tell and clear
-- them. ZSET corrections: <tenant>|<lane> → how much more its jobs cost than they were charged.
local note_change, note_weight, write_changes
do -- a script has 200 local names at most
local names, anew = {}, {}

-- Child c of N is put (S: where it stood) or goes. That the first of its lanes is another, a leader knows of itself.
function note_change(N, c, S)
  if N.name == '' and S then return end
  local name = N.name == '' and c .. '|' or N.name .. '|' .. c
  if anew[name] == nil then push(names, name) end
  anew[name] = anew[name] or not S
end

-- The weight of a lane, or with l '' of a tenant, may be another.
function note_weight(t, l)
  local name = t .. '|' .. l
  if anew[name] == nil then push(names, name) end
  anew[name] = anew[name] or false
end

-- Who entered or left goes to the end; who stayed keeps its place among those that are not told yet.
function write_changes()
  if #names == 0 then return end
  local first, moved, stayed = redis.call('HINCRBY', P .. 'marks', 'entered', #names) - #names, {}, {}
  for i, name in ipairs(names) do push(anew[name] and moved or stayed, first + i, name) end
  variadic('ZADD', P .. 'entered', moved)
  for from = 1, #stayed, 4000 do
    redis.call('ZADD', P .. 'entered', 'NX', unpack(stayed, from, math.min(from + 3999, #stayed)))
  end
  names, anew = {}, {}
end
end
