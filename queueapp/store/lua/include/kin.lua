-- Fan-in: a job may wait for children, and is released by the script in which the last of them ends.
--   waiting        ZSET    parents by since when they wait (state w; each has its run hash, with `kd`)
--   open:<p>       SET     children of p that have not ended, by id; by public id where another pool has them. `+`: a
--                          hold, more of them are to come
--   children:<p>   HASH    child → `position|policy|outcome|entry|result`, of those that have ended; entry: of another
--                          pool's outbox, so that nothing older is heard later; outcome `reopened`: it runs again
--   parents        HASH    child → `policy|position|parent`; the parent by public id where another pool has it
--   outbox         STREAM  what other pools must hear of: children to be made there, ends of children; and of which
--                          parents here somebody must be told that a child failed them (store/families.py)
--   sweeps         ZSET    h:<p> a hold, by the moment at which it is given up; c:<p> an ended parent whose children
--                          are being cancelled (sweeps.lua). conf `sweeps`: there are any
-- Children are told by their ids: those that `enqueue_flow` and `add_children` make are UUIDs of version 8, all others
-- of version 7. So a job without a parent pays for none of this, not a command, wherever it ends.
--
-- A child that ends (completed, or any other way: then it has failed) leaves `open`, once, in the script that ends it.
-- policy, of a child that fails: f = the parent dies of it, at once; r = it counts as an error of the parent, which
-- dies when that was its last, and else goes on when all have ended; c = the parent goes on when all have ended, and is
-- told; i = as if the child had never been. `open` empty: the parent gets a new place in line. Nobody waits who has not
-- `open`, and only what waits is released: so once, whatever the order and however many end together.
-- A dead child keeps its link: redriven it is waited for again, and what comes of it replaces what was told. A parent
-- that is dead keeps all of this for its own redrive. Nothing here is undone when an end is told twice.
-- The end of a parent may be the end of a child: `settle` goes up level by level, LEVELS at most; what is above that
-- goes through the outbox, to this very pool.
local family = {}
do -- a script has 200 local names at most
-- Byte 9 of an id holds its version and two more bits.
function family.is_member(id)
  local version = string.byte(id, 9)
  return version and version >= 86 and version <= 89
end

-- How a job ended; its result.
function family.tell(id, outcome, result)
  if family.is_member(id) then moves.told[id] = {outcome, result} end
end
end
