-- forget makes the UID of a deleted entry free for another one.
--
-- KEYS[1]  the entry      ARGV[1]  time to live of a tombstone, in seconds
-- Reply: 1 if the UID was retired, else 0
--
-- The tombstone gets its time to live first. If the server refuses the second command, the UID is
-- still retired, and a check reports that the tombstone expires.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~retired')
if head.err then return redis.error_reply(head.err) end
if not head[2] or head[1] and head[1] ~= '' then return 0 end
for _, command in ipairs({{'EXPIRE', KEYS[1], ARGV[1]}, {'HDEL', KEYS[1], '~retired'}}) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
end
return 1
