-- swap sets or removes an SRK if it still has exactly the value that was read (I1).
--
-- KEYS[1]  the SRK      ARGV[1]  the value that was read
-- ARGV[2]  the new value, "" to remove the SRK
-- Reply: 1 if the SRK was changed or already has the new value, else 0
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
if seen == ARGV[1] then
  local reply
  if ARGV[2] == '' then reply = redis.pcall('UNLINK', KEYS[1]) else reply = redis.pcall('SET', KEYS[1], ARGV[2]) end
  if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
  return 1
end
return (ARGV[2] ~= '' and seen == ARGV[2]) and 1 or 0
