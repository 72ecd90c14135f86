-- The fence of leadership: true for a term that is not the newest. Asked before anything is written, so that a leader
-- that was frozen, and does not know that its term is over, changes nothing. `lead` writes the fence.
local function is_over(epoch, nonce)
  local newest = redis.call('HMGET', P .. 'fence', 'epoch', 'nonce')
  return newest[1] ~= epoch or newest[2] ~= nonce
end
