-- create: the common case of change.lua, an entry where nothing is yet, in few commands (I1, I2, I7). All else is
-- left to change.lua, which knows the rev if this was done.
--
-- KEYS[1]  the entry      KEYS[2]  ~/schema/TYPE      KEYS[3..]  SRKs to claim, SRKs elsewhere, the entry's tertiary records, of which
--          none may be there yet; and last the feed, if something is noted
-- ARGV[1]  fingerprint    ARGV[2]  own PRK, relative   ARGV[3]  how many SRKs to claim
-- ARGV[4]  the line to be noted, "" for none: it lies in the entry until another follows, see history.lua
-- ARGV[5]  the time in milliseconds, "" for the server's      ARGV[6]  how many entries the feed has at most
-- ARGV[7..]  field, value, …
-- Reply: 1 if it is done, 0 if nothing was done
local call, pcall, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV -- a global is looked up each time
if pcall('HGET', KEYS[2], 'fingerprint') ~= ARGV[1] then return 0 end
local last, line, note = #KEYS, ARGV[4], nil
if line ~= '' then last = last - 1 end
if call('EXISTS', KEYS[1], unpack(KEYS, 3, last)) ~= 0 then return 0 end
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
-- What an entry takes comes before it: SRKs that name no live entry are garbage at worst (I4).
local claimed, first = 2 + ARGV[3], nil
if claimed > 2 then first = pcall('SET', KEYS[3], ARGV[2]) else first = write() end
if type(first) == 'table' and first.err then return redis.error_reply(first.err) end
for i = 4, claimed do call('SET', KEYS[i], ARGV[2]) end
if claimed > 2 then
  local reply = write()
  if type(reply) == 'table' then error({err = reply.err}) end
end
if note then -- what has been done
  local id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[6], '*', 'e', ARGV[2] .. ' - ' .. line)
  if type(id) == 'table' and id.err then error({err = id.err}) end
end
return 1
