-- movehold moves a value that an entry or a tombstone holds to another field or canonical form, or
-- removes it. If the target is already held, the later end counts.
--
-- KEYS[1]  the entry      ARGV[1]  the field that holds the value
-- ARGV[2]  the field that holds it from now on, "" for none
-- ARGV[3]  the text that the first field must have, "" for any
-- Reply: 1 if the entry held the value, else 0
local ends = redis.pcall('HMGET', KEYS[1], ARGV[1], ARGV[2])
if ends.err then return redis.error_reply(ends.err) end
if not ends[1] or ARGV[3] ~= '' and ends[1] ~= ARGV[3] then return 0 end
if ARGV[2] ~= '' and (tonumber(ends[2]) or 0) < (tonumber(ends[1]) or 0) then
  local reply = redis.pcall('HSET', KEYS[1], ARGV[2], ends[1])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
local reply = redis.pcall('HDEL', KEYS[1], ARGV[1])
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return 1
