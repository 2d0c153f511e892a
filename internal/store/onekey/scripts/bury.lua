-- bury: ends what a delete, or a fence of an entry that is not there, was refused in the middle
-- (I4). After tombstone.lua.
--
-- KEYS[1]  the entry      ARGV[1]  seconds that a tombstone lives
-- Reply: 1 if it is a tombstone that goes by itself, 0 if it is an entry or damage
local isa = redis.pcall('HGET', KEYS[1], '~isa')
if type(isa) == 'table' then return redis.error_reply(isa.err) end
if isa and isa ~= '' then return 0 end
if not isa then
  local fields = redis.call('HKEYS', KEYS[1])
  for _, field in ipairs(fields) do
    if string.sub(field, 1, 1) ~= '~' then return 0 end
  end
  if #fields == 0 then return 0 end
end
if redis.call('PTTL', KEYS[1]) == -1 then
  local reply = redis.pcall('EXPIRE', KEYS[1], ARGV[1])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
if isa then strip(KEYS[1], true) end
return 1
