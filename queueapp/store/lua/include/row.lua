-- The row of a job. `job:<id>` is a STRING: a header and the opaque payload. Its first byte is `p`, `s`, `i` or `b`
-- until the first dispatch or lease; from then on a HASH `run:<id>` holds the state, and the byte becomes `h` when the
-- job waits again.
-- Header: state, version 1, number of submission as 12 hexadecimal digits (the place in line: a new one is written over
-- it; zeros of a job that never had one), then `|`-separated: submitted ms (and `+` the ms until it is due, of a job
-- enqueued for later; and `@` what its lane stood at when it came into line, blocks.lua), task number, tenant, lane
-- ('' = main), priority ('' = 0), tier (c or ''), cost ('' = undeclared), max_attempts ('' = 1), max_crashes ('' = 3),
-- expiry ms, deadline ms, key set ('' = no concurrency keys), fingerprint, newline.
local SUSPECT = 2 -- so many crashes, and a job is leased alone

local function hex(seq) return string.format('%012x', seq) end

local function build_row(state, seq, j, submitted, task)
  return table.concat({
    state .. '1' .. hex(seq) .. string.format('%.0f', submitted)
      .. (j.due and string.format('+%.0f', j.due - submitted) or '')
      .. (j.stood and string.format('@%.0f', j.stood) or ''),
    task, j.tenant, j.lane == 'main' and '' or j.lane,
    j.priority == '0' and '' or j.priority, j.tier == 'continue' and 'c' or '', j.cost == '0' and '' or j.cost,
    j.max_attempts == '1' and '' or j.max_attempts, j.max_crashes == '3' and '' or j.max_crashes,
    j.expires and string.format('%.0f', j.expires) or '', j.deadline_ms == '0' and '' or j.deadline_ms,
    j.keys or '', j.fingerprint .. '\n' .. j.payload,
  }, '|')
end

local parse_row
do -- a script has 200 local names at most
local HEADER = '^(.)1(%x%x%x%x%x%x%x%x%x%x%x%x)(%d+)%+?(%d*)@?(%-?%d*)|(%d+)|([^|]+)|([^|]*)|(%-?%d*)|(c?)|([^|]*)|'
  .. '(%d*)|(%d*)|(%d*)|(%d*)|([^|]*)|([^\n]*)\n'

-- The header as a table, or nil when the text is no row of ours. With `whole` it tells the fingerprint, too; without,
-- its table is half as large (the server makes room for 16 names or for 32), of each job that is looked at.
function parse_row(text, whole)
  local state, seq, submitted, delay, stood, task, tenant, lane, priority, tier, cost, attempts, crashes, expires,
    deadline, ks, fingerprint = string.match(text, HEADER)
  if not state then return nil end
  local row = {
    state = state, seq = seq, submitted = submitted, delay = tonumber(delay), stood = tonumber(stood),
    task = task, tenant = tenant, lane = lane == '' and 'main' or lane,
    priority = tonumber(priority) or 0, tier = tier, cost = tonumber(cost), max_attempts = tonumber(attempts) or 1,
    max_crashes = tonumber(crashes) or 3, expires = tonumber(expires), deadline = tonumber(deadline),
    keys = ks ~= '' and ks or nil,
  }
  if whole then row.fingerprint = fingerprint end
  return row
end
end

-- Header only (never the payload): at most 400 bytes are read.
local function read_row(id)
  local text = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 399)
  return type(text) == 'string' and parse_row(text, true) or nil
end

local read_run
do -- as above
-- The run hash: s state, a attempts, en attempt that ended, w worker, st lease start, t tenant, l lane (absent =
-- main), n task number, ch charge, fs tenant's tag after it, k key set (absent = no concurrency keys), gn the
-- generation that charged it (absent = 0), cx when it was told to stop (stopping.lua); and its history: e errors, c
-- crashes, f forgiven, r rank at the lease with its id (only where no row can tell it again), kp number of submission
-- with which it last kept its place, b begun, s1 first lease start (absent = st), sp when a suspect was first passed
-- over, ls seq of the leasing call, sm submitted, rd ready since, of a job that waited again (absent = submitted or
-- due), le ue us wa wb wl ws what it waited for (waited.lua), uk unknown task since, o outcome or reason, te time of
-- the end, g group of a dead letter, u the singleton that it held (once.lua), ep epoch of the term that last
-- dispatched it, dt when (ready.lua), mv code.shard of the pool to which it moved and hp how often it did (depart.lua),
-- ed how often its arguments were edited, when last, and by which call (rewrite.lua), kd = 1 of a job that has waited
-- for children, by the one that it died of, fr the first one for whose failure it shall run again (kin.lua).
-- nil when there is no hash; nil and true when its key has a wrong type.
local UNREAD = {__index = {e = 0, c = 0, f = 0, r = false, b = false, s1 = false, sp = false, rd = false, kp = false}}
function read_run(id)
  local v = redis.pcall('HMGET', P .. 'run:' .. id, 's', 'a', 'en', 'w', 'st', 't', 'l', 'n', 'ch', 'fs', 'k', 'gn',
    'cx', 'kd')
  if v.err or not v[1] then return nil, v.err and true end
  return setmetatable({
    id = id, s = v[1], a = tonumber(v[2]) or 0, en = tonumber(v[3] or nil), w = v[4] or nil, st = tonumber(v[5] or nil),
    t = v[6], l = v[7] or 'main', n = v[8], ch = v[9] or nil, fs = tonumber(v[10] or nil), k = v[11] or nil,
    gn = tonumber(v[12] or 0) or 0, cx = v[13] or nil, kd = v[14] or nil,
  }, UNREAD)
end
end

-- Adds the budgets, the place in line and what it waited for (waited.lua). Only what fails, is lost, is given back or
-- waits again needs them.
local function read_history(run)
  local v = redis.call('HMGET', P .. 'run:' .. run.id, 'e', 'c', 'f', 'r', 'b', 's1', 'sp', 'rd', 'kp',
    'le', 'wa', 'wb', 'wl', 'ue', 'us')
  run.e, run.c, run.f = tonumber(v[1] or 0) or 0, tonumber(v[2] or 0) or 0, tonumber(v[3] or 0) or 0
  run.r, run.b = v[4], v[5] == '1'
  run.s1, run.sp, run.rd, run.kp = v[6], tonumber(v[7] or nil), v[8], v[9]
  run.le, run.wa, run.wb = tonumber(v[10] or nil), tonumber(v[11] or 0), tonumber(v[12] or 0)
  run.wl, run.ue, run.us = tonumber(v[13] or 0), tonumber(v[14] or nil), tonumber(v[15] or 0)
  return run
end

-- Since when a waiting job could have been leased, as far as its lease, if it had one, knew.
local function ready_of(row, run)
  return run and tonumber(run.rd or nil) or row.submitted + (row.delay or 0)
end
