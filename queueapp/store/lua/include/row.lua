-- The row of a job. `job:<id>` is a STRING: a header and the opaque payload. Its first byte is `p` or `s` until the
-- first lease; from then on a HASH `run:<id>` holds the state, and the byte becomes `h` when the job waits again.
-- Header: state, version 1, then `|`-separated: submitted ms (and `+` the ms until it is due, of a job enqueued for
-- later), task number, tenant, lane ('' = main), priority ('' = 0), tier (c or ''), cost ('' = undeclared),
-- max_attempts ('' = 1), max_crashes ('' = 3), expiry ms, fingerprint, newline.
local HEADER = '^(.)1(%d+)%+?(%d*)|(%d+)|([^|]+)|([^|]*)|(%-?%d*)|(c?)|([^|]*)|(%d*)|(%d*)|(%d*)|([^\n]*)\n'

local function build_row(state, j, submitted, task)
  return table.concat({
    state .. '1' .. string.format('%.0f', submitted) .. (j.due and string.format('+%.0f', j.due - submitted) or ''),
    task, j.tenant, j.lane == 'main' and '' or j.lane,
    j.priority == '0' and '' or j.priority, j.tier == 'continue' and 'c' or '', j.cost == '0' and '' or j.cost,
    j.max_attempts == '1' and '' or j.max_attempts, j.max_crashes == '3' and '' or j.max_crashes,
    j.expires and string.format('%.0f', j.expires) or '', j.fingerprint .. '\n' .. j.payload,
  }, '|')
end

-- The header as a table, or nil when the text is no row of ours.
local function parse_row(text)
  local state, submitted, delay, task, tenant, lane, priority, tier, cost, attempts, crashes, expires, fingerprint =
    string.match(text, HEADER)
  if not state then return nil end
  return {
    state = state, submitted = submitted, delay = tonumber(delay), task = task, tenant = tenant,
    lane = lane == '' and 'main' or lane,
    priority = tonumber(priority) or 0, tier = tier, cost = tonumber(cost), max_attempts = tonumber(attempts) or 1,
    max_crashes = tonumber(crashes) or 3, expires = tonumber(expires), fingerprint = fingerprint,
  }
end

-- The text of the row without tier and expiry.
local function fresh_row(text)
  local before_tier, cost, budgets, rest =
    string.match(text, '^(.1%d+%+?%d*|%d+|[^|]+|[^|]*|%-?%d*|)c?(|[^|]*)(|%d*|%d*|)%d*(|.*)$')
  return before_tier .. cost .. budgets .. rest
end

-- Header only (never the payload): at most 400 bytes are read.
local function read_row(id)
  local text = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 399)
  return type(text) == 'string' and parse_row(text) or nil
end

-- The run hash: s state, a attempts, en attempt that ended, w worker, st lease start, t tenant, l lane (absent = main),
-- n task number, ch charge, fs tenant's tag after it; and its history: e errors, c crashes, f forgiven, r rank, b
-- begun, s1 first lease start (absent = st), sp when a suspect was first passed over, ls seq of the leasing call, sm
-- submitted, rd ready since, of a job that waited again (absent = submitted or due), uk unknown task since, o outcome
-- or reason, te time of the end, g group of a dead letter. nil when there is no hash; nil and true when its key has a
-- wrong type.
local function read_run(id)
  local v = redis.pcall('HMGET', P .. 'run:' .. id, 's', 'a', 'en', 'w', 'st', 't', 'l', 'n', 'ch', 'fs')
  if v.err or not v[1] then return nil, v.err and true end
  return {
    id = id, s = v[1], a = tonumber(v[2]) or 0, en = tonumber(v[3] or nil), w = v[4] or nil, st = tonumber(v[5] or nil),
    t = v[6], l = v[7] or 'main', n = v[8], ch = v[9] or nil, fs = tonumber(v[10] or nil),
    e = 0, c = 0, f = 0, r = 0, b = false, s1 = false, sp = false, rd = false,
  }
end

-- Adds the budgets and the place in line. Only what fails, is lost, is given back or waits again needs them.
local function read_history(run)
  local v = redis.call('HMGET', P .. 'run:' .. run.id, 'e', 'c', 'f', 'r', 'b', 's1', 'sp', 'rd')
  run.e, run.c, run.f = tonumber(v[1] or 0), tonumber(v[2] or 0), tonumber(v[3] or 0)
  run.r, run.b = tonumber(v[4] or 0), v[5] == '1'
  run.s1, run.sp, run.rd = v[6], tonumber(v[7] or nil), v[8]
  return run
end
