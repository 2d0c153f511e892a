-- forgetheld removes a held value from a tombstone.
--
-- KEYS[1]  the entry      ARGV[1]  the field that holds the value
-- Reply: 1 if the entry is not live and held the value, else 0
local head = redis.pcall('HMGET', KEYS[1], '~isa', ARGV[1])
if head.err then return redis.error_reply(head.err) end
if not head[2] or head[1] and head[1] ~= '' then return 0 end
local reply = redis.pcall('HDEL', KEYS[1], ARGV[1])
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return 1
