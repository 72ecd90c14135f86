-- The first continuation of a pool: from now on they stand in queues of their own there (`has_tiers`).
local function begin_tiers()
  if pool.tiers then return end
  redis.call('HSET', P .. 'conf', 'tiers', 1)
  pool.tiers = true
end
