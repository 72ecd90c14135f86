-- The process of the server that runs the script. A cursor of SCAN leads to all that is left only in the one that gave
-- it: behind a failover or a restart it may skip keys. A user without the right to INFO is told none: such cursors are
-- trusted.
local process
do
local told = redis.pcall('INFO', 'server')
process = type(told) == 'string' and string.match(told, 'run_id:(%w+)') or 'unknown'
end
