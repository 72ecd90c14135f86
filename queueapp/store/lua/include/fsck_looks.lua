-- What every part of `fsck` has at hand: how a difference is told and put right, how a job is looked at.
local fsck = {findings = {}, told = {}, mended = 0, mending = ARGV[4] == '1'}

-- Something is not as it must be. `mend` puts it right; without one a human has to look.
function fsck.wrong(kind, name, what, mend)
  local word = mend and (fsck.mending and 'mended' or 'mendable') or 'by_hand'
  push(fsck.findings, {kind, name, what, word, fsck.subject[1], fsck.subject[2]})
  if mend and fsck.mending then
    fsck.mended = fsck.mended + 1
    mend()
  end
end

function fsck.tell_fact(...) push(fsck.told, {...}) end

-- Row, hash and state of a job; state nil: nobody can read it.
function fsck.look(id)
  local row, run, bad = read_row(id), read_run(id)
  if bad or run and (not (run.t or row) or run.s == 'a' and not run.w) then return row, nil, nil end
  local state = run and run.s or row and row.state ~= 'h' and row.state or nil
  return row, run, state
end

-- The index of an ended job.
function fsck.home_of_ended(id) return redis.call('HGET', P .. 'run:' .. id, 'o') == 'moved' and 'stubs' or 'ended' end

-- Nothing of the job is there: it was lost, or there never was one.
function fsck.is_nothing(id) return redis.call('EXISTS', P .. 'job:' .. id, P .. 'run:' .. id) == 0 end

function fsck.is_aside(id) return redis.call('SISMEMBER', P .. 'quarantine', id) == 1 end

function fsck.aside(id, stands, t, ks)
  if not fsck.is_aside(id) then set_aside(id, stands, t, ks) end
end
