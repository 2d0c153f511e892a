-- forget makes the UID of a deleted entry free for another one. It needs the functions of
-- tombstone.lua.
--
-- KEYS[1]  the entry      ARGV[1]  time to live of a tombstone, in seconds
-- Reply: 1 if the UID was retired, else 0
--
-- If the server refuses the command that sets the time to live, the UID is free and a check reports
-- that the tombstone never expires.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~retired')
if head.err then return redis.error_reply(head.err) end
if not head[2] or head[1] and head[1] ~= '' then return 0 end
local reply = redis.pcall('HDEL', KEYS[1], '~retired')
if type(reply) == 'table' then return redis.error_reply(reply.err) end
end_tombstone(KEYS[1], ARGV[1])
return 1
