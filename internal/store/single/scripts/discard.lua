-- discard: removes what no live entry holds, if that is still so (I1, I4).
--
-- KEYS[1]  the record          KEYS[2]  the entry it belongs to, if any
-- ARGV[1]  the string it must still be, or ""     ARGV[2]  the one set member that goes, or ""
-- ARGV[3], ARGV[4]  secondary field and canonical value that make the entry hold it, or ""
-- Reply: {"ok"} | {"held"} | {"changed"}

if KEYS[2] then
  local q = redis.pcall('HMGET', KEYS[2], '~isa', '~skv:' .. ARGV[3], ARGV[3])
  if q.err == nil and q[1] and q[1] ~= '' and (ARGV[3] == '' or (q[2] or q[3]) == ARGV[4]) then return {'held'} end
end
if ARGV[1] ~= '' then
  local seen = redis.pcall('GET', KEYS[1])
  if seen ~= ARGV[1] then return {'changed'} end
end
local reply
if ARGV[2] ~= '' then
  reply = redis.pcall('SREM', KEYS[1], ARGV[2])
else
  reply = redis.pcall('UNLINK', KEYS[1])
end
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return {reply == 0 and 'changed' or 'ok'}
