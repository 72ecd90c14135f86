-- Ingress: where new, due and redriven jobs of a pool with scheduled dispatch wait for a leader to rank them.
-- STREAM ingress, an entry a job: field `j` = id|tenant|lane|tier|priority|cost|deadline|ready|seq|keyed, what a rank
-- may depend on (cost: declared, or estimated now). The row says state i. Consumer group `leader`: what a leader read
-- and did not admit is claimed by the next. Who cancels, expires or moves such a job leaves its entry alone: whoever
-- admits finds the row in another state and drops the entry (admission.lua).

-- `row` as it was read, or a job of `enqueue`; its state is written already.
local function to_ingress(id, row, seq, ready)
  redis.call('XADD', P .. 'ingress', '*', 'j', string.format('%s|%s|%s|%s|%.0f|%.17g|%s|%.0f|%.0f|%s', id, row.tenant,
    row.lane, row.tier == 'continue' and 'c' or row.tier == 'start' and '' or row.tier, row.priority, cost_of(row),
    row.deadline and string.format('%.0f', row.deadline) or '', ready, seq, row.keys and '1' or ''))
end
