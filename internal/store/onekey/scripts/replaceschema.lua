-- replaceschema replaces the stored schema in one step if it still has the fingerprint that was
-- read.
--
-- KEYS[1]  ~/schema/TYPE      ARGV[1]  the fingerprint that was read, "" for none
-- ARGV[2], …                  the fields of the new schema: field, value, …, the fingerprint first.
--                             Fields that name tertiary records are kept. Without any fields, the
--                             whole key is removed.
-- Reply: 1 if the new schema is stored now, else 0
--
-- The new schema is written before the other fields of the old one are removed, because a deleted
-- key may not be written again in a slot that is being migrated.
local stored = redis.pcall('HGET', KEYS[1], 'fingerprint')
if type(stored) == 'table' then return redis.error_reply(stored.err) end
stored = stored or ''
if stored ~= ARGV[1] then return stored == ARGV[3] and 1 or 0 end
local reply
if #ARGV == 1 then
  reply = redis.pcall('UNLINK', KEYS[1])
else
  -- These two commands change nothing. A full server refuses the first one, and a server that
  -- forbids HDEL refuses the second one.
  if stored ~= '' then reply = redis.pcall('HSET', KEYS[1], 'fingerprint', stored) end
  if stored ~= '' and type(reply) ~= 'table' then reply = redis.pcall('HDEL', KEYS[1], '~none') end
  if type(reply) ~= 'table' then reply = redis.pcall('HSET', KEYS[1], unpack(ARGV, 2)) end
end
if type(reply) == 'table' then return redis.error_reply(reply.err) end
if #ARGV == 1 then return 1 end
local kept = {}
for i = 2, #ARGV, 2 do kept[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if not kept[field] and string.sub(field, 1, 9) ~= 'tertiary:' then redis.call('HDEL', KEYS[1], field) end
end
return 1
