#!lua flags=allow-oom
-- erase: jobs of a tenant, in whatever state → gone
--
-- KEYS: prefix
-- ARGV: schema clock_ms tenant
-- Groups: jobs(id)
-- Refusals: schema
-- Events: stats erased; wake w; wake:leader i; done:<waiter>
-- Nothing of them is left: no row, arguments, result, error, progress. A body that runs goes on; its slots are free,
-- and what it says or saves is refused, because nobody knows the job any more. Answers one word per id: erased, other
-- (of another tenant, or on its way to another pool), gone.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "owner"
--- @include "slots"
--- @include "node"
--- @include "charge"
--- @include "rank"
--- @include "refresh"
--- @include "wake"
--- @include "move"
--- @include "finish"
--- @include "due"
tick()
next_argument = 5
local words, done = {}, {}
for i, j in ipairs(next_group(tonumber(ARGV[4]), 1)) do
  local id, word = j[1], 'gone'
  local row, run = read_row(id), read_run(id)
  local t = row and row.tenant or run and run.t
  local state = run and run.s or row and row.state
  if done[id] then
    word = 'erased'
  elseif t and (t ~= ARGV[3] or state == 'm') then
    word = 'other'
  elseif t and (row or state == 'e') then
    if WAITING[state] then
      leave_waiting(id, row, state, run)
    elseif state == 'a' then
      end_lease(run)
    elseif state == 'd' then
      leave_dead(id, t)
    else
      remove_from('ended', id)
    end
    if state ~= 'e' and row.keys then use_keys(row.keys, -1) end
    for _, kind in ipairs({'job:', 'run:', 'result:', 'errors:', 'data:', 'checkpoint:'}) do
      push(moves.unlink, P .. kind .. id)
    end
    push(moves.ended, id)
    count('erased')
    done[id], word = true, 'erased'
  end
  words[i] = word
end
write_held()
close()
return {1, words}
