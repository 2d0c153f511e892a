-- create makes an entry with few commands if none of its records exists yet, which is the usual
-- case (I1, I2, I7). It leaves all other cases to change.lua, which recognizes the rev if an
-- earlier run of this script made the entry.
--
-- KEYS[1]  the entry
-- KEYS[2]  ~/schema/TYPE
-- KEYS[3..]  SRKs to claim, SRKs elsewhere (see change.lua) and the entry's tertiary records, none
--          of which may exist yet; and last the feed, if there is a history line
-- ARGV[1]  the fingerprint of the schema
-- ARGV[2]  the PRK, relative
-- ARGV[3]  the number of SRKs to claim
-- ARGV[4]  the history line, "" for none; it waits in the entry until another line is written, see
--          history.lua
-- ARGV[5]  the time in milliseconds, "" for the server's
-- ARGV[6]  the maximum number of entries in the feed
-- ARGV[7..]  field, value, …
-- Reply: 1 if the entry was made, 0 if nothing was written

-- Locals are faster than globals.
local call, pcall, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV
if pcall('HGET', KEYS[2], 'fingerprint') ~= ARGV[1] then return 0 end
local last, line, note, number, at = #KEYS, ARGV[4], nil, nil, nil
if line ~= '' then last = last - 1 end
for i = 3, math.max(last, 3), 2000 do -- in pieces, since unpack has a limit
  if call('EXISTS', KEYS[1], unpack(KEYS, i, math.min(i + 1999, last))) ~= 0 then return 0 end
end
if line ~= '' then
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', KEYS[#KEYS], '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
  local clock = call('TIME')
  at = clock[1] .. string.sub('00' .. math.floor(clock[2] / 1000), -3)
  number = ARGV[5] ~= '' and ARGV[5] .. '000 ' or clock[1] .. string.sub('00000' .. clock[2], -6) .. ' '
  note = number .. line
end
-- SRKs are written before the entry that they name: until then they are at worst garbage, which no
-- reader sees (I4).
local claimed, reply = 2 + ARGV[3], nil
if claimed > 2 then
  reply = pcall('SET', KEYS[3], ARGV[2])
  if reply.err then return redis.error_reply(reply.err) end
end
for i = 4, claimed do call('SET', KEYS[i], ARGV[2]) end
if note then
  reply = pcall('HSET', KEYS[1], '~note', note, unpack(ARGV, 7))
else
  reply = pcall('HSET', KEYS[1], unpack(ARGV, 7))
end
if type(reply) == 'table' then
  if claimed > 2 then error({err = reply.err}) end
  return redis.error_reply(reply.err)
end
if note then -- the entry was made
  local id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[6], at .. '-*', 'e', ARGV[2] .. ' - ' .. line)
  if type(id) == 'table' and id.err and string.find(id.err, 'equal or smaller', 1, true) then
    -- The server's clock was ahead: see add in history.lua.
    id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[6], '*', 'e', ARGV[2] .. ' ' .. note)
  end
  if type(id) == 'table' and id.err then error({err = id.err}) end
end
return 1
