-- add: run a command that adds members to a tertiary record, unless there would be too many. Needs
-- full.lua.
--
-- KEYS[1]  the record      ARGV[1]  the most members that it may have
-- ARGV[2]  the command     ARGV[3…]  what follows the key
-- Reply: {"ok", the command's reply} | {"full"}
local most, command = tonumber(table.remove(ARGV, 1)), table.remove(ARGV, 1)
local is_full, refused = full(KEYS[1], command, ARGV, most)
if refused then return redis.error_reply(refused) end
if is_full then return {'full'} end
local sum
for i = 1, #ARGV, 2000 do
  local reply = redis.pcall(command, KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
  if type(reply) == 'table' then
    if i == 1 then return redis.error_reply(reply.err) end
    error({err = reply.err})
  end
  sum = (i == 1 or string.find(command, 'PUSH')) and reply or sum + reply
end
return {'ok', sum}
