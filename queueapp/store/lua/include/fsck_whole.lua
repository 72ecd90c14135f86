-- What stands in no key that could be met: flags of conf, tokens. And the sums: as stored, and what is added to them.
do
local function flag(name, is, key_)
  local there = redis.call('EXISTS', P .. key_) == 1
  if is == there then return end
  local how = there and ' is missing, but ' or ' is there, but not '
  fsck.wrong('flag', name, 'conf ' .. name .. how .. key_, function()
    if there then redis.call('HSET', P .. 'conf', name, 1) else redis.call('HDEL', P .. 'conf', name) end
    pool[name] = there and (name == 'blocks' and '1' or true) or (name ~= 'blocks' and false or nil)
  end)
end

function fsck.look_at_whole()
  flag('keyed', pool.keyed, 'keysets')
  flag('parks', pool.parks, 'backlog')
  flag('once', pool.once, 'once')
  flag('sweeps', pool.sweeps, 'sweeps')
  if not pool.blocks then flag('blocks', false, 'blocks') end
  for _, field in ipairs(redis.call('HKEYS', P .. 'counts')) do
    if field ~= 'w' then
      fsck.wrong('leftover', field, 'counts holds it, and nobody reads it', function()
        redis.call('HDEL', P .. 'counts', field)
      end)
    end
  end
  local ready_size, entries = redis.call('ZCARD', P .. 'ready'), redis.call('XLEN', P .. 'ingress')
  if not pool.scheduled and not pool.leftover and (ready_size > 0 or entries > 0) then
    fsck.wrong('flag', 'leftover', 'a direct pool has forgotten what stands in ready or ingress', function()
      redis.call('HSET', P .. 'conf', 'leftover', 1)
      pool.leftover = true
    end)
  end
  local walks = pool_open() and (redis.call('EXISTS', W .. 'walk') == 1 or generation.holds_jobs())
  local leasable = pool.scheduled and ready_size > 0 and not pool.paused or not pool.scheduled and walks
  -- A worker that has just taken the token calls within a moment; one that died on the way never does.
  if leasable and not redis.call('ZSCORE', P .. 'wake', 'w') then fsck.tell_fact('unarmed', 'wake') end
  if pool.scheduled then
    local window = tonumber(redis.call('HGET', P .. 'marks', 'window') or nil)
    local open = walks and (not window or window > ready_size + redis.call('ZCARD', P .. 'active'))
    if (open or entries > 0) and not redis.call('ZSCORE', P .. 'wake:leader', 'i') then
      fsck.tell_fact('unarmed', 'wake:leader')
    end
  end
end

-- Nothing that came to ingress up to `last` named this job; what came since is looked at here.
function fsck.look_at_ingress(id, cursor)
  local last, seq = string.match(cursor, '^(.*)@(%x+)$')
  local row, run, state = fsck.look(id)
  if state ~= 'i' or not row or row.seq ~= seq then return end
  local entries = redis.call('XRANGE', P .. 'ingress', last == '' and '-' or '(' .. last, '+', 'COUNT', 1000)
  if #entries == 1000 then return end
  for _, entry in ipairs(entries) do
    if string.match(entry[2][2] or '', '^([^|]+)|') == id then return end
  end
  fsck.wrong('index', id, 'has no entry in ingress', function()
    if run then read_history(run) end
    if tonumber(row.seq, 16) == 0 then
      row.seq = hex(take_seq(1))
      redis.call('SETRANGE', P .. 'job:' .. id, 2, row.seq)
    end
    to_ingress(id, row, tonumber(row.seq, 16), ready_of(row, run))
  end)
end

function fsck.tell_counters(name, cursor, most)
  if name == 'counts' then
    fsck.tell_fact('sum', 'w', redis.call('HGET', P .. 'counts', 'w') or 0)
    return '0'
  end
  local page = redis.call(name == 'tenants' and 'ZSCAN' or 'HSCAN', P .. name, cursor, 'COUNT', most)
  local version = redis.call('HGET', P .. 'conf', 'version') or '0'
  local floors, front = 0, 0
  for i = 1, #page[2], 2 do
    local field, value = page[2][i], page[2][i + 1]
    if name == 'tenants' then
      fsck.tell_fact('sum', 't:' .. field, value)
    elseif name == 'keyusers' then
      fsck.tell_fact('sum', field, value)
    elseif name == 'keynames' then
      fsck.tell_fact('text', field)
    elseif name == 'keysets' then
      local digests = {}
      for d, key in ipairs(keyset(field)) do digests[d] = key.digest end
      fsck.tell_fact('set', field, unpack(digests))
    elseif name == 'limits' then
      if string.find(field, '^f[tlk]:') then front = front + 1 end
      if string.find(field, '^[tl]:') and limit_of(field).promised then floors = floors + 1 end
    end
  end
  if name == 'limits' then fsck.tell_fact('limits', version, floors, front) end
  if name == 'limits' then
    local stored = redis.call('HMGET', P .. 'conf', 'floors', 'front')
    fsck.tell_fact('conf', stored[1] or 0, stored[2] or 0)
  end
  return page[1]
end

function fsck.adjust(name, by)
  local n, version = string.match(by, '^(%-?%d+)@?(.*)$')
  n = tonumber(n)
  if name == 'floors' or name == 'front' then
    if (redis.call('HGET', P .. 'conf', 'version') or '0') ~= version then return end
    return fsck.wrong('sum', name, 'conf ' .. name .. ' is not what limits holds', function()
      redis.call('HINCRBY', P .. 'conf', name, n)
    end)
  end
  local kind, what = string.match(name, '^(%a+):(.*)$')
  local off = string.format('counts %.0f too %s', math.abs(n), n > 0 and 'few' or 'many')
  if kind == 'k' then
    if (redis.call('HGET', P .. 'keyusers', name) or '0') ~= version then return end
    return fsck.wrong('sum', name, off, function()
      if tonumber(version) + n > 0 then
        redis.call('HINCRBY', P .. 'keyusers', name, n)
      else
        redis.call('HDEL', P .. 'keyusers', name)
      end
    end)
  end
  if kind == 'set' or kind == 'text' then
    local hash, user = kind == 'set' and 'keysets' or 'keynames', (kind == 'set' and 's:' or 'k:') .. what
    if redis.call('HEXISTS', P .. 'keyusers', user) == 1 or redis.call('HEXISTS', P .. hash, what) == 0 then return end
    return fsck.wrong('leftover', what, hash .. ' keeps it, but nothing needs it', function()
      redis.call('HDEL', P .. hash, what)
    end)
  end
  if name == 'wake' then -- `close` arms
    return fsck.wrong('wake', 'wake', 'there is something to do, but nobody is woken', function() end)
  end
  fsck.wrong('sum', name, off, function()
    if name == 'w' then redis.call('HINCRBY', P .. 'counts', 'w', n) end
    if kind == 't' then redis.call('ZINCRBY', P .. 'tenants', n, what) end
    if kind == 's' then
      if redis.call('HEXISTS', P .. 'keyusers', name) == 1 then
        keyset(what)
        use_keys(what, n)
      else
        redis.call('HSET', P .. 'keyusers', name, n)
      end
    end
  end)
end
end
