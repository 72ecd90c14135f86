#!lua
-- retry_from_dlq: dead → pending, ingress, scheduled, or waiting for children, with a new place in line, fresh budgets
--
-- KEYS: prefix
-- ARGV: schema clock_ms first_ms gap_ms
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats redriven; wake w, t; wake:leader i
-- An operator wants it to run: its expiry is dropped, and its deadline, which it did not keep; its tier is start.
-- attempts goes on growing: it is the fence. The first is due in first_ms, each further one gap_ms after the one
-- before; what is due later than now waits for its time, and takes its place in line then. A parent some of whose
-- children have not ended waits for them first; a child is waited for again by a parent that waits, or died.
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
next_argument = 6
local first_ms, gap_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
-- The text of the row without tier, expiry and deadline.
local function fresh_row(text)
  local before_tier, cost, budgets, rest =
    string.match(text, '^(.1%x+%+?%d*@?%-?%d*|%d+|[^|]+|[^|]*|%-?%d*|)c?(|[^|]*)(|%d*|%d*|)%d*|%d*(|.*)$')
  return before_tier .. cost .. budgets .. '|' .. rest
end

local words, retried = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[5]), 1)) do
  local id = j[1]
  local row, state, run = waiting_row(id)
  if state == 'd' and not once.hold_again(id) then
    words[i] = 'skipped'
  elseif state == 'd' then
    read_history(run)
    local died = redis.call('HGET', P .. 'run:' .. id, 'te')
    redis.call('HSET', P .. 'run:' .. id, 's', 'p', 'rd', now, 'e', 0, 'c', 0, 'f', run.f + 1, 'le', run.le or died)
    redis.call('HDEL', P .. 'run:' .. id, 'o', 'te', 'uk', 'sp', 'by')
    family.reopen(id)
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
  local due = now + math.floor(first_ms + (i - 1) * gap_ms)
  local waits = job.run.kd and redis.call('EXISTS', P .. 'open:' .. job.id) == 1
  if waits then
    redis.call('HSET', P .. 'run:' .. job.id, 's', 'w')
    hash_holds_state(job.id)
    append(moves.add, 'waiting', now, job.id)
  elseif due > now then
    redis.call('HSET', P .. 'run:' .. job.id, 's', 's', 'rd', due)
    hash_holds_state(job.id)
    to_scheduled(job.id, due)
  else
    place_anew(job.id, job.row, job.run, seq + i - 1, now)
  end
  if not waits then count_waiting(job.row.tenant, 1) end
  leave_dead(job.id, job.row.tenant)
  count('redriven')
end
close()
return {1, words}
