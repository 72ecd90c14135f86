#!lua
-- rewrite: dead → dead, with other arguments
--
-- KEYS: prefix
-- ARGV: schema clock_ms id edits token commit keys singleton payload
-- Groups:
-- Refusals: schema
-- Events: none
-- An operator corrects what it died of. Errors, attempts and place among the dead letters stay, and the fingerprint,
-- which stands for what was submitted under this id: whoever sends that again still finds it. The checkpoint goes: a
-- run with other arguments must not go on where one with the old ones was. `edits` is how often it had been edited
-- when the caller read it, `token` names this call. keys, singleton: what the new arguments give, digests of the
-- concurrency keys by digest, and of the singleton; a job keeps those that it has. Without `commit` it only judges.
-- Answers a word (rewritten, fits, changed: somebody else edited it, keys, singleton, already: not dead any more,
-- gone), how often it has been edited, and when last.
--- @include "shard"
--- @include "clock"
--- @include "row"
--- @include "keysets"
tick()
local id, token, commit = ARGV[3], ARGV[5], ARGV[6] == '1'
local text = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 399)
local row = type(text) == 'string' and parse_row(text)
local run = redis.pcall('HMGET', P .. 'run:' .. id, 's', 'ed', 'u')
if not run[1] then return {1, row and 'already' or 'gone', 0, 0} end
local count, at, last = string.match(run[2] or '0|0|', '^(%d+)|(%d+)|(.*)$')
count, at = tonumber(count), tonumber(at)

local function has_keys()
  local digests = {}
  for _, key in ipairs(keyset(row.keys)) do push(digests, key.digest) end
  return table.concat(digests, ' ')
end

local word
if commit and last == token then
  word = 'rewritten' -- its reply was lost, whatever became of the job since
elseif run[1] ~= 'd' or not row then
  word = 'already'
elseif count ~= tonumber(ARGV[4]) then
  word = 'changed'
elseif row.keys and has_keys() ~= ARGV[7] then
  word = 'keys'
elseif run[3] and run[3] ~= 'single:' .. row.tenant .. '|' .. ARGV[8] then
  word = 'singleton'
elseif not commit then
  word = 'fits'
else
  word, count, at = 'rewritten', count + 1, now
  redis.call('SET', P .. 'job:' .. id, string.match(text, '^[^\n]*\n') .. ARGV[9])
  redis.call('HSET', P .. 'run:' .. id, 'ed', string.format('%.0f|%.0f|%s', count, now, token))
  redis.call('DEL', P .. 'checkpoint:' .. id)
end
return {1, word, count, at}
