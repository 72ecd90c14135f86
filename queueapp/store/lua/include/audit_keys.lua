-- What `verify` recounts of concurrency keys: sub-lanes, their pointers, who waits for which key, and the key sets.
-- `pointers` are the members of lanes that stand for sub-lanes: set → {member, rank}.
local parked = {}
do
  local stored = redis.call('HGETALL', W .. 'parked')
  for i = 1, #stored, 2 do parked[stored[i]] = stored[i + 1] end
end

local function key_set_of(set) return string.match(set, '|@(.+)$') end

-- Sub-lane `set` waits for the key at the place of its head, and is found from the key's own set (waiters.lua).
local function waits_at(set, digest, head)
  for _, key in ipairs(keyset(key_set_of(set))) do
    if key.digest == digest then
      local class = string.format('%.0f|%s', key.limit, key.pattern)
      local group = pool.ordered and '*' or string.match(set, ':([^|]+)|')
      local outer = W .. 'blocked:' .. digest
      return redis.call('ZSCORE', outer, class) and redis.call('ZSCORE', outer .. '|' .. class, group)
        and redis.call('ZSCORE', outer .. '|' .. class .. '|' .. group, tie_of(head[1]) .. set) == head[2]
    end
  end
  return false
end

-- Each sub-lane stands in its lane or waits for one key that it has, at the place of its head. `standing` are the keys
-- of those in lanes.
local standing, subs = {}, {}
for _, tier in ipairs({'q', 'qc'}) do
  for name in pairs(found[tier]) do
    local set = tier .. ':' .. name
    local ks = key_set_of(set)
    if ks then
      local head = redis.call('ZRANGE', W .. set, 0, 0, 'WITHSCORES')
      local pointer, digest = pointers[set], parked[set]
      subs[set] = true
      if not redis.call('ZSCORE', W .. 'sublanes', set) then report('sublanes lacks %s', set) end
      if #keyset(ks) == 0 then report('keysets lacks %s of %s', ks, set) end
      if pointer and digest then report('%s stands in its lane and waits for %s', set, digest) end
      if not pointer and not digest then report('%s stands nowhere', set) end
      if pointer and (pointer[1] ~= tie_of(head[1]) .. '@' .. ks or pointer[2] ~= head[2]) then
        report('pointer of %s is not its head', set)
      end
      if pointer then
        for _, key in ipairs(keyset(ks)) do standing[key.digest] = true end
      end
      if digest and not waits_at(set, digest, head) then report('blocked:%s has not %s at its head', digest, set) end
    end
  end
end
for set in pairs(pointers) do
  if not subs[set] then report('a pointer to %s, which is empty', set) end
end
for set, digest in pairs(parked) do
  if not subs[set] then report('parked holds %s, which is empty', set) end
  local due, full = redis.call('ZSCORE', W .. 'waitkeys', digest), full_key(key_set_of(set))
  if not due then report('waitkeys lacks %s', digest) end
  if due and not full and not standing[digest] and tonumber(due) > now then
    report('%s waits for %s, which is free and offered to nobody', set, digest)
  end
end
for _, set in ipairs(members('sublanes')) do
  if not subs[set] then report('sublanes holds %s, which is empty', set) end
end
local waited_for, inside = {}, {}
for name in pairs(found.blocked) do
  local digest, class, group = string.match(name, '^([^|]+)|?([^|]*|?[^|]*)|?([^|]*)$')
  waited_for[digest] = waited_for[digest] or false
  for _, member in ipairs(members('blocked:' .. name)) do
    if class == '' then
      waited_for[digest] = true
      if not found.blocked[digest .. '|' .. member] then report('blocked:%s holds %s: nobody waits', name, member) end
    elseif group == '' then
      if not found.blocked[name .. '|' .. member] then report('blocked:%s holds %s: nothing waits', name, member) end
    elseif parked[id_of(member)] ~= digest or inside[id_of(member)] then
      report('blocked:%s holds %s wrongly', digest, member)
    else
      inside[id_of(member)] = true
    end
  end
end
for digest, is_there in pairs(waited_for) do
  if not is_there then report('blocked:%s is not there', digest) end
end
for digest in pairs(found.turns) do
  if not waited_for[digest] then report('turns:%s is kept, but nobody waits', digest) end
end
for _, digest in ipairs(members('waitkeys')) do
  if not waited_for[digest] then report('waitkeys holds %s, for which nobody waits', digest) end
end

-- Key sets live as long as jobs with them, texts as long as key sets. What was set aside may have left its set behind.
local users, sets_with = {}, {}
for id, job in pairs(info) do
  local ks = job.row and job.row.keys
  if ks and job.state ~= 'e' then users['s:' .. ks] = (users['s:' .. ks] or 0) + 1 end
  if job.state == 'a' and (job.run.k or nil) ~= ks then report('%s runs with another key set than its row has', id) end
end
for field in pairs(users) do
  local ks = string.sub(field, 3)
  for _, key in ipairs(keyset(ks)) do sets_with['k:' .. key.digest] = (sets_with['k:' .. key.digest] or 0) + 1 end
  if redis.call('HEXISTS', P .. 'keysets', ks) == 0 then report('keysets lacks %s', ks) end
end
for field, n in pairs(sets_with) do users[field] = n end
if redis.call('EXISTS', P .. 'quarantine') == 0 then
  local stored = redis.call('HGETALL', P .. 'keyusers')
  for i = 1, #stored, 2 do
    local field = stored[i]
    if tonumber(stored[i + 1]) ~= users[field] then
      report('keyusers has %s at %s, counted %d', field, stored[i + 1], users[field] or 0)
    end
    users[field] = nil
  end
  for field in pairs(users) do report('keyusers lacks %s', field) end
  for _, ks in ipairs(redis.call('HKEYS', P .. 'keysets')) do
    if redis.call('HEXISTS', P .. 'keyusers', 's:' .. ks) == 0 then report('keysets keeps %s', ks) end
  end
  for _, digest in ipairs(redis.call('HKEYS', P .. 'keynames')) do
    if not sets_with['k:' .. digest] then report('keynames keeps %s', digest) end
  end
  for field in pairs(sets_with) do
    if redis.call('HEXISTS', P .. 'keynames', string.sub(field, 3)) == 0 then report('keynames lacks %s', field) end
  end
end
if pool.keyed ~= (redis.call('EXISTS', P .. 'keysets') == 1) then report('conf keyed is wrong') end
