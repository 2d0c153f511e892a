-- add runs a command that adds members to a tertiary record, unless the record would then have too
-- many. It needs the functions of command.lua.
--
-- KEYS[1]  the record      ARGV[1]  maximum number of its members
-- ARGV[2]  the command     ARGV[3…]  its arguments after the key
-- Reply: {"ok", the command's reply} | {"full"}: the record would have too many members
local most, command = tonumber(table.remove(ARGV, 1)), table.remove(ARGV, 1)
local is_full, refused = full(KEYS[1], command, ARGV, most)
if refused then return redis.error_reply(refused) end
if is_full then return {'full'} end
local reply, failure, partly = run_command(KEYS[1], command, ARGV)
if partly then error({err = failure}) end
if failure then return redis.error_reply(failure) end
return {'ok', reply}
