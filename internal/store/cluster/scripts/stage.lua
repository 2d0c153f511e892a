-- stage adds members to a tertiary record that is prepared for a change before its commit.
--
-- KEYS[1]  the prepared record, at a key that only this attempt uses
-- ARGV[1]  its time to live, in seconds
-- ARGV[2]  the command that writes the members: SADD, ZADD, HSET, RPUSH or, for a string, SET
-- ARGV[3…] the members; for a record that is only dropped, an empty string
-- Reply: 1
--
-- The script may arrive twice. Only RPUSH would have an effect again: for a list, the script skips
-- as many members as the list already has.
local first = 3
if ARGV[2] == 'RPUSH' then
  local n = redis.pcall('LLEN', KEYS[1])
  if type(n) == 'table' then return redis.error_reply(n.err) end
  first = first + n
end
for i = first, #ARGV, 2000 do
  local reply = redis.pcall(ARGV[2], KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
  if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
