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
local last, line, note = #KEYS, ARGV[4], nil
if line ~= '' then last = last - 1 end
for i = 3, math.max(last, 3), 2000 do -- in pieces, since unpack has a limit
  if call('EXISTS', KEYS[1], unpack(KEYS, i, math.min(i + 1999, last))) ~= 0 then return 0 end
end
if line ~= '' then
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', KEYS[#KEYS], '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
  local number = ARGV[5] .. '000 '
  if number == '000 ' then
    local clock = call('TIME')
    number = clock[1] .. string.sub('00000' .. clock[2], -6) .. ' '
  end
  note = number .. line
end
local function write()
  if note then return pcall('HSET', KEYS[1], '~note', note, unpack(ARGV, 7)) end
  return pcall('HSET', KEYS[1], unpack(ARGV, 7))
end
-- SRKs are written before the entry that they name: until then they are at worst garbage, which no
-- reader sees (I4).
local claimed, first = 2 + ARGV[3], nil
if claimed > 2 then first = pcall('SET', KEYS[3], ARGV[2]) else first = write() end
if type(first) == 'table' and first.err then return redis.error_reply(first.err) end
for i = 4, claimed do call('SET', KEYS[i], ARGV[2]) end
if claimed > 2 then
  local reply = write()
  if type(reply) == 'table' then error({err = reply.err}) end
end
if note then -- the entry was made
  local id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[6], '*', 'e', ARGV[2] .. ' - ' .. line)
  if type(id) == 'table' and id.err then error({err = id.err}) end
end
return 1
