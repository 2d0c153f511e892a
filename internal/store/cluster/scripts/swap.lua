-- swap: compares an SRK with exactly what was seen, and sets or removes it (I1).
--
-- KEYS[1]  the SRK      ARGV[1]  what was seen      ARGV[2]  what it becomes; "": it goes
-- Reply: 1 if it is so now; 0 if something else was there
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
if seen == ARGV[1] then
  local reply
  if ARGV[2] == '' then reply = redis.pcall('UNLINK', KEYS[1]) else reply = redis.pcall('SET', KEYS[1], ARGV[2]) end
  if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
  return 1
end
return (ARGV[2] ~= '' and seen == ARGV[2]) and 1 or 0
