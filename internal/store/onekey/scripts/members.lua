-- members takes one step of SSCAN over an index. It starts again if the cursor belongs to another
-- process (redisx.Cursor).
--
-- KEYS[1]  the index set      ARGV[1]  cursor      ARGV[2]  the process that made it, or ""
-- ARGV[3]  approximate number of members
-- Reply: {this process, "" if the server forbids asking; next cursor; members}
local info = redis.pcall('INFO', 'server')
local process = type(info) == 'string' and string.sub(string.match(info, 'run_id:(%w+)') or '', 1, 8) or ''
local at = ARGV[1]
if process ~= '' and ARGV[2] ~= '' and ARGV[2] ~= process then at = '0' end
local step = redis.pcall('SSCAN', KEYS[1], at, 'COUNT', ARGV[3])
if step.err then return redis.error_reply(step.err) end
return {process, step[1], step[2]}
