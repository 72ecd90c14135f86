-- Concurrency keys: each sub-lane with jobs stands in its lane or waits for one key, at the place of its head; who
-- waits is found from the key; sets and texts are there as long as somebody needs them.
do
local function home_of(set, t, ks, digest)
  for _, key in ipairs(keyset(ks)) do
    if key.digest == digest then
      return W .. 'blocked:' .. digest, string.format('%.0f|%s', key.limit, key.pattern), pool.ordered and '*' or t
    end
  end
end

local function waits_at(set, t, ks, digest, head)
  local outer, class, group = home_of(set, t, ks, digest)
  return outer and redis.call('ZSCORE', outer, class) and redis.call('ZSCORE', outer .. '|' .. class, group)
    and redis.call('ZSCORE', outer .. '|' .. class .. '|' .. group, tie_of(head[1]) .. set) == head[2]
end

-- Out of everywhere, then into its lane; `write_moves` parks it anew where a key is full.
local function stand_anew(set, queue, t, l, ks, head)
  local s = {set = set, queue = queue, t = t, l = l, ks = ks}
  redis.call('HDEL', W .. 'parked', set)
  for _, key in ipairs(keyset(ks)) do
    if waiters.drop(s, key.digest, tie_of(head[1])) then redis.call('ZREM', W .. 'waitkeys', key.digest) end
  end
  redis.call('ZADD', W .. 'sublanes', 0, set)
  redis.call('ZADD', W .. queue, head[2], tie_of(head[1]) .. '@' .. ks)
  blocks.mark_sub_lane(t, l, set, false)
  sub.touch(set, true)
  touch(t, l)
end

function fsck.look_at_sub_lane(set, kind, t, l, ks)
  local head = redis.call('ZRANGE', W .. set, 0, 0, 'WITHSCORES')
  if not head[1] then return end
  local queue = kind .. ':' .. t .. '|' .. l
  local digest = redis.call('HGET', W .. 'parked', set)
  local pointer = redis.call('ZSCORE', W .. queue, tie_of(head[1]) .. '@' .. ks)
  local fault = not redis.call('ZSCORE', W .. 'sublanes', set) and 'is missing in sublanes'
    or pointer and digest and 'stands in its lane and waits for a key'
    or not pointer and not digest and 'stands nowhere'
    or pointer and pointer ~= head[2] and 'its pointer is not its head'
    or digest and not waits_at(set, t, ks, digest, head) and 'waits for a key that does not know it'
    or digest and not string.find(redis.call('HGET', P .. 'blocks', set) or '', '^%d+|%d')
      and 'waits for a key, which blocks does not count'
  if fault then fsck.wrong('waiting', set, fault, function() stand_anew(set, queue, t, l, ks, head) end) end
end

-- blocked:<digest>, …|<limit>|<pattern>, …|<group>: each leads to something, and what waits knows it.
local function look_at_blocked(name, cursor, most)
  local digest, class, group = string.match(name, '^blocked:([^|]+)|?([^|]*|?[^|]*)|?([^|]*)$')
  if not digest then return '0' end
  if class == '' and not redis.call('ZSCORE', W .. 'waitkeys', digest) then
    fsck.wrong('waiting', digest, 'somebody waits for this key, which is missing in waitkeys', function()
      wake_if_earlier(pool.mark .. 'waitkeys', now)
      redis.call('ZADD', W .. 'waitkeys', now, digest)
    end)
  end
  local outer = 'blocked:' .. digest
  local above, child = group == '' and outer or outer .. '|' .. class, group == '' and class or group
  if class ~= '' and not redis.call('ZSCORE', W .. above, child) then
    fsck.wrong('waiting', name, above .. ' does not lead to it', function()
      local limit = tonumber(string.match(class, '^%d+')) or 0
      redis.call('ZADD', W .. above, group == '' and limit or pool.ordered and 0 or
        tonumber(redis.call('ZSCORE', W .. 'turns:' .. digest, group) or 0), child)
    end)
  end
  local page = redis.call('ZSCAN', W .. name, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    local bad
    if group == '' then
      bad = redis.call('EXISTS', W .. name .. '|' .. member) == 0
    else
      local set = id_of(member)
      local head = redis.call('ZRANGE', W .. set, 0, 0)[1]
      bad = not head or redis.call('HGET', W .. 'parked', set) ~= digest or tie_of(head) ~= tie_of(member)
    end
    if bad then
      fsck.wrong('waiting', member, name .. ' holds it wrongly', function() redis.call('ZREM', W .. name, member) end)
    end
  end
  return page[1]
end

local MEND = {
  sublanes = function(field) redis.call('ZREM', W .. 'sublanes', field) end,
  waitkeys = function(field) redis.call('ZREM', W .. 'waitkeys', field) end,
  parked = function(field)
    redis.call('HDEL', W .. 'parked', field)
    blocks.forget(field)
  end,
}
local GONE = {
  sublanes = function(field) return redis.call('EXISTS', W .. field) == 0 end,
  waitkeys = function(field) return redis.call('EXISTS', W .. 'blocked:' .. field) == 0 end,
  parked = function(field) return redis.call('EXISTS', W .. field) == 0 end,
}

function fsck.look_at_keyed(kind, name, cursor, most)
  if kind == 'blocked' then return look_at_blocked(name, cursor, most) end
  if kind == 'turns' then
    if redis.call('EXISTS', W .. 'blocked:' .. string.sub(name, 7)) == 0 then
      fsck.wrong('leftover', name, 'is kept, but nobody waits for the key', function()
        redis.call('UNLINK', W .. name)
      end)
    end
    return '0'
  end
  local in_line = kind == 'sublanes' or kind == 'waitkeys' or kind == 'parked'
  local key_ = (in_line and W or P) .. name
  local command = (kind == 'sublanes' or kind == 'waitkeys') and 'ZSCAN' or 'HSCAN'
  local page = redis.call(command, key_, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local field = page[2][i]
    if GONE[kind] and GONE[kind](field) then
      fsck.wrong('leftover', field, kind .. ' keeps it, but nothing needs it', function() MEND[kind](field) end)
    elseif kind == 'keysets' then
      for _, key in ipairs(keyset(field)) do
        if redis.call('HEXISTS', P .. 'keynames', key.digest) == 0 then
          fsck.wrong('keys', key.digest, 'the text of this key is lost', function()
            redis.call('HSET', P .. 'keynames', key.digest, key.pattern)
          end)
        end
      end
    end
  end
  return page[1]
end
end
