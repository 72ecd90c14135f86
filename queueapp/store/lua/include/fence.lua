-- The fence of leadership: true for a term that is not the newest. Asked before anything is written, so that a leader
-- that was frozen, and does not know that its term is over, changes nothing. `lead` writes the fence.
local function is_over(epoch, nonce)
  local newest = redis.call('HMGET', P .. 'fence', 'epoch', 'nonce')
  return newest[1] ~= epoch or newest[2] ~= nonce
end

-- The same for the order in which jobs wait: it begins anew with each configuration that changes the policy or what it
-- takes, and conf `order` is the version of the last that did ('0' = none yet). What a leader ranked, chose or kept for
-- an older one is refused, and it reads the configuration again. '' = the store ranks and chooses itself, which it
-- cannot where Lua does not know the policy.
local function is_another_order(order)
  if order == '' then return pool.mirrored end
  return order ~= (redis.call('HGET', P .. 'conf', 'order') or '0')
end
