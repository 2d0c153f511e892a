-- create: the common case of change.lua, an entry where nothing is yet, in few commands (I1, I2, I7). All else is
-- left to change.lua, which knows the rev if this was done.
--
-- KEYS[1]  the entry      KEYS[2]  ~/schema/TYPE      KEYS[3..]  SRKs to claim, SRKs elsewhere
-- ARGV[1]  fingerprint    ARGV[2]  own PRK, relative   ARGV[3]  how many SRKs to claim   ARGV[4..]  field, value, …
-- Reply: 1 if it is done, 0 if nothing was done
local call, pcall, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV -- a global is looked up each time
if pcall('HGET', KEYS[2], 'fingerprint') ~= ARGV[1] then return 0 end
if call('EXISTS', KEYS[1], unpack(KEYS, 3)) ~= 0 then return 0 end
-- What an entry takes comes before it: SRKs that name no live entry are garbage at worst (I4).
local claimed, first = 2 + ARGV[3], nil
if claimed > 2 then first = pcall('SET', KEYS[3], ARGV[2]) else first = pcall('HSET', KEYS[1], unpack(ARGV, 4)) end
if type(first) == 'table' and first.err then return redis.error_reply(first.err) end
for i = 4, claimed do call('SET', KEYS[i], ARGV[2]) end
if claimed > 2 then call('HSET', KEYS[1], unpack(ARGV, 4)) end
return 1
