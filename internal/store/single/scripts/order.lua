-- order: brings a place in an ordered index in line with an entry (I4, I5).
--
-- KEYS[1]  the index, a sorted set     KEYS[2]  the entry, if any
-- ARGV[1]  the place      ARGV[2], ARGV[3]  a field and a value
-- ARGV[4]  take: the place is the entry's if it has the value, and free otherwise
--          free: the place is free, unless the entry has another value than this one
-- Reply: {"ok"} | an error where the index is no sorted set
local q = KEYS[2] and redis.pcall('HMGET', KEYS[2], '~isa', ARGV[2])
local value = q and q.err == nil and q[1] and q[1] ~= '' and q[2]
local reply
if ARGV[4] == 'take' and value == ARGV[3] then
  reply = redis.pcall('ZADD', KEYS[1], '0', ARGV[1])
elseif ARGV[4] == 'take' or not value or value == ARGV[3] then
  reply = redis.pcall('ZREM', KEYS[1], ARGV[1])
end
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return {'ok'}
