-- Parents and children (kin.lua): who waits has somebody to wait for, who has ended was told of, and nothing is kept.
do
local HOLD = '+'

-- A job that waits for children.
function fsck.look_at_parent(id, row, run)
  if row.expires and not redis.call('ZSCORE', P .. 'expiring', id) then
    fsck.wrong('index', id, 'is missing in expiring', function() to_expiring(row, id) end)
  end
  if redis.call('EXISTS', P .. 'open:' .. id) == 0 then
    fsck.wrong('waiting', id, 'waits for children, but none is left', function() family.release(run, row) end)
  end
end

-- A child and its link. `lost`: what became of it when nobody can tell.
function fsck.see_link(id, link)
  local parent = string.match(link, '^[frci]|%d+|(.+)$')
  if not parent then
    return fsck.wrong('child', id, 'its parent cannot be read', function() redis.call('HDEL', P .. 'parents', id) end)
  end
  local _, _, state = fsck.look(id)
  if not state or state == 'e' then
    return fsck.wrong('child', id, 'has ended, but its parent was not told', function()
      family.tell(id, state and redis.call('HGET', P .. 'run:' .. id, 'o') or 'lost',
        redis.call('GET', P .. 'result:' .. id) or nil)
      push(moves.ended, id)
    end)
  end
  local open = state ~= 'd' and family.is_here(parent) and P .. 'open:' .. parent
  if not open or redis.call('SISMEMBER', open, id) == 1 then return end
  local _, _, waits = fsck.look(parent)
  if waits == 'w' then
    fsck.wrong('child', id, 'is not waited for by ' .. parent, function()
      redis.call('SADD', open, id)
    end)
  end
end

function fsck.see_open(parent, child)
  if child == HOLD then
    if redis.call('ZSCORE', P .. 'sweeps', 'h:' .. parent) then return end
    return fsck.wrong('waiting', parent, 'waits for more children, and nobody looks', function()
      family.sweep_at('h:' .. parent, now)
    end)
  end
  if not family.is_here(child) then return end
  local link = redis.call('HGET', P .. 'parents', child)
  if string.match(link or '', '^%l|%d+|(.+)$') == parent then return end
  local _, _, state = fsck.look(child)
  if not link and state and state ~= 'e' then
    return fsck.wrong('child', child, 'is waited for, but does not know by whom', function()
      redis.call('HSET', P .. 'parents', child, 'c|0|' .. parent)
    end)
  end
  fsck.wrong('child', child, 'open:' .. parent .. ' holds it, but it is no child of it that could end', function()
    redis.call('SREM', P .. 'open:' .. parent, child)
    family.look(parent)
  end)
end

-- Whose children are kept.
function fsck.look_at_open(parent)
  local _, _, state = fsck.look(parent)
  if state == 'w' or state == 'd' or redis.call('ZSCORE', P .. 'sweeps', 'c:' .. parent) then return true end
  fsck.wrong('leftover', 'open:' .. parent, 'is kept, but nobody waits', function()
    push(moves.unlink, P .. 'open:' .. parent)
  end)
end

function fsck.see_sweep(member)
  local kind, id = string.match(member, '^([hc]):(.+)$')
  local needed = kind == 'c' and redis.call('EXISTS', P .. 'open:' .. id) == 1
    or kind == 'h' and redis.call('SISMEMBER', P .. 'open:' .. id, HOLD) == 1
  if needed then return end
  fsck.wrong('member', member, 'sweeps holds it for nothing', function() family.swept(member) end)
end
end
