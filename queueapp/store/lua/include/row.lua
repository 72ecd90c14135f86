-- The row of a job. `job:<id>` is a STRING: a header and the opaque payload. Its first byte is `p` or `s` until the
-- first lease; from then on a HASH `run:<id>` holds the state, and the byte becomes `h` when the job waits again.
-- Header: state, version 1, then `|`-separated: submitted ms, task number, tenant, lane ('' = main), priority ('' = 0),
-- tier (c or ''), cost ('' = undeclared), max_attempts ('' = 1), max_crashes ('' = 3), expiry ms, fingerprint, newline.
local HEADER = '^(.)1(%d+)|(%d+)|([^|]+)|([^|]*)|(%-?%d*)|(c?)|([^|]*)|(%d*)|(%d*)|(%d*)|([^\n]*)\n'

local function build_row(state, j, submitted, task)
  return table.concat({
    state .. '1' .. string.format('%.0f', submitted), task, j.tenant, j.lane == 'main' and '' or j.lane,
    j.priority == '0' and '' or j.priority, j.tier == 'continue' and 'c' or '', j.cost == '0' and '' or j.cost,
    j.max_attempts == '1' and '' or j.max_attempts, j.max_crashes == '3' and '' or j.max_crashes,
    j.expires and string.format('%.0f', j.expires) or '', j.fingerprint .. '\n' .. j.payload,
  }, '|')
end

-- The header as a table, or nil when the text is no row of ours.
local function parse_row(text)
  local state, submitted, task, tenant, lane, priority, tier, cost, attempts, crashes, expires, fingerprint =
    string.match(text, HEADER)
  if not state then return nil end
  return {
    state = state, submitted = submitted, task = task, tenant = tenant, lane = lane == '' and 'main' or lane,
    priority = tonumber(priority) or 0, tier = tier, cost = tonumber(cost), max_attempts = tonumber(attempts) or 1,
    max_crashes = tonumber(crashes) or 3, expires = tonumber(expires), fingerprint = fingerprint,
  }
end

-- Header only (never the payload): at most 400 bytes are read.
local function read_row(id)
  return parse_row(redis.call('GETRANGE', P .. 'job:' .. id, 0, 399))
end

-- Fields of the run hash, in the order in which `read_run` answers them.
-- s state, a attempts, en attempt that ended, w worker, c crashes, f forgiven, e errors, st lease start, t tenant,
-- l lane (absent = main), n task number, sm submitted, r rank, b begun, ch charge, fs tenant's tag after it,
-- s1 first lease start (absent = st), sp when a suspect was first passed over
local RUN = {'s', 'a', 'en', 'w', 'c', 'f', 'e', 'st', 't', 'l', 'n', 'sm', 'r', 'b', 'ch', 'fs', 's1', 'sp'}

-- The run hash as a table by field; nil when there is none or its key has the wrong type.
local function read_run(id)
  local values = redis.pcall('HMGET', P .. 'run:' .. id, unpack(RUN))
  if values.err or not values[1] then return nil end
  local run = {id = id}
  for i, field in ipairs(RUN) do run[field] = values[i] or nil end
  run.a = tonumber(run.a) or 0
  run.c = tonumber(run.c) or 0
  run.f = tonumber(run.f) or 0
  run.e = tonumber(run.e) or 0
  run.l = run.l or 'main'
  return run
end
