-- realign updates the index sets of the given members to match a tertiary set (I5): it adds the
-- entry to the index set of each member that is in the tertiary set, and removes it from the index
-- sets of the others.
--
-- KEYS[1]  the entry
-- KEYS[2]  the set
-- KEYS[3..]  the index set of each member
-- ARGV[1]  the member that stands for the entry
-- ARGV[2..]  the members
-- Reply: 1
local isa = redis.pcall('HGET', KEYS[1], '~isa')
local has = type(isa) == 'string' and isa ~= '' and redis.pcall('SMISMEMBER', KEYS[2], unpack(ARGV, 2)) or {}
for i = 3, #KEYS do
  local reply = redis.pcall(has[i - 2] == 1 and 'SADD' or 'SREM', KEYS[i], ARGV[1])
  if type(reply) == 'table' and not string.find(reply.err, 'WRONGTYPE', 1, true) then return redis.error_reply(reply.err) end
end
return 1
