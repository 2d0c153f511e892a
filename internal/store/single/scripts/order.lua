-- order updates a position in an ordered index to agree with an entry (I4, I5).
--
-- KEYS[1]  the index, a sorted set
-- KEYS[2]  the entry, if any
-- ARGV[1]  the position, a member of the index
-- ARGV[2]  a field
-- ARGV[3]  a value
-- ARGV[4]  "take": the entry gets the position if it has the value, and loses it otherwise
--          "free": the entry loses the position, unless it is live and its value has changed
-- ARGV[5]  "1" if the entry must lack the field instead of having the value
-- Reply: {"ok"}, or an error if the index is not a sorted set
local q = KEYS[2] and redis.pcall('HMGET', KEYS[2], '~isa', ARGV[2])
local live = q and q.err == nil and q[1] and q[1] ~= ''
local same = live and q[2] == (ARGV[5] ~= '1' and ARGV[3])
local reply
if ARGV[4] == 'take' and same then
  reply = redis.pcall('ZADD', KEYS[1], '0', ARGV[1])
elseif ARGV[4] == 'take' or not live or same then
  reply = redis.pcall('ZREM', KEYS[1], ARGV[1])
end
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return {'ok'}
