-- act runs a command on a tertiary record once, however often the script is sent. It needs the
-- functions of changes.lua and command.lua.
--
-- KEYS[1]  the record
-- KEYS[2]  the replies to recent calls, kept for ten minutes in the record's slot: "CALL=NUMBER"
--          for each, followed by a space
-- ARGV[1]  the name of the call, twelve characters
-- ARGV[2]  maximum number of members of the record, "0" for no limit
-- ARGV[3]  the command      ARGV[4…]  its arguments
-- Reply: {"changed" or "same", the command's reply as a number} | {"full"}: the record would have
--        too many members
local call, most, command = ARGV[1], tonumber(ARGV[2]), ARGV[3]
for _ = 1, 3 do table.remove(ARGV, 1) end
local calls = redis.pcall('GET', KEYS[2])
calls = type(calls) == 'string' and calls or ''
local _, at = string.find(calls, call .. '=', 1, true)
if at then return {'changed', tonumber(string.match(calls, '^%d+', at + 1))} end -- sent again

local is_full, refused = full(KEYS[1], command, ARGV, most)
if refused then return redis.error_reply(refused) end
if is_full then return {'full'} end
local due, wrong = changes(KEYS[1], command, ARGV)
if wrong and string.find(wrong, 'WRONGTYPE', 1, true) then return redis.error_reply(wrong) end
local reply, failure, partly = run_command(KEYS[1], command, ARGV)
if partly then error({err = failure}) end
if failure then return redis.error_reply(failure) end
local n = type(reply) == 'table' and 0 or tonumber(reply) -- SET replies OK
if not due then return {'same', n} end
calls = calls .. call .. '=' .. string.format('%d', n) .. ' '
while #calls > 4096 do calls = string.match(calls, ' (.*)') end
redis.pcall('SET', KEYS[2], calls, 'PX', '600000') -- matters only if the reply is lost
return {'changed', n}
