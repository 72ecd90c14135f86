-- Does the caller hold the lease? `attempts` only grows, so an equal number is the fence. A failover that lost writes
-- may give the same number again, to another worker: where the caller says who it is (`worker`, else nil) it is heard
-- only for leases of its own.
-- Answers the run hash, or nil and the word of the refusal: done (this attempt ended before), gone, stale.
local function owned_run(id, attempts, worker)
  local run = read_run(id)
  if not run then
    return nil, 'gone'
  end
  if worker and run.w ~= worker then
    return nil, 'stale'
  end
  if run.s == 'a' and run.a == attempts then
    return run
  end
  if run.en == attempts then
    return nil, 'done'
  end
  return nil, 'stale'
end
