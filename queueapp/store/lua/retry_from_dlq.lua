#!lua
-- retry_from_dlq: dead → pending or ingress, with a new place in line and fresh budgets
--
-- KEYS: prefix
-- ARGV: schema clock_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats redriven; wake w; wake:leader i
-- An operator wants it to run: its expiry is dropped, and its deadline, which it did not keep; its tier is start.
-- attempts goes on growing: it is the fence.
-- Answers one word per id: retried, skipped (another job has its singleton now), already (not dead any more), gone.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "due"
tick()
next_argument = 4
local words, retried = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[3]), 1)) do
  local id = j[1]
  local row, state, run = waiting_row(id)
  if state == 'd' and not once.hold_again(id) then
    words[i] = 'skipped'
  elseif state == 'd' then
    redis.call('HSET', P .. 'run:' .. id, 's', 'p', 'rd', now, 'e', 0, 'c', 0, 'f', read_history(run).f + 1)
    redis.call('HDEL', P .. 'run:' .. id, 'o', 'te', 'uk', 'sp')
    if row.expires or row.deadline or row.tier ~= '' then
      redis.call('SET', P .. 'job:' .. id, fresh_row(redis.call('GET', P .. 'job:' .. id)))
    end
    row.deadline, row.tier = nil, ''
    push(retried, {id = id, row = row, run = run})
    words[i] = 'retried'
  else
    words[i] = (row or redis.call('EXISTS', P .. 'run:' .. id) == 1) and 'already' or 'gone'
  end
end
local seq = #retried > 0 and take_seq(#retried)
for i, job in ipairs(retried) do
  local place = seq + i - 1
  place_anew(job.id, job.row, job.run, place, now)
  count_waiting(job.row.tenant, 1)
  leave_dead(job.id, job.row.tenant)
  count('redriven')
end
close()
return {1, words}
