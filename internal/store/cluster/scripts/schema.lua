-- schema: what ~/schema/TYPE says, stored where nothing is.
--
-- KEYS[1]  ~/schema/TYPE      ARGV[1]  fingerprint      ARGV[2]  schema      ARGV[3]  "1": it may be stored
-- Reply: {"ok"} | {"schema", stored} | {"unstored"}
local stored = redis.pcall('HGET', KEYS[1], 'fingerprint')
if type(stored) == 'table' then return redis.error_reply(stored.err) end
if stored == ARGV[1] then return {'ok'} end
if stored then return {'schema', redis.call('HGET', KEYS[1], 'schema') or ''} end
if ARGV[3] ~= '1' then return {'unstored'} end
local reply = redis.pcall('HSET', KEYS[1], 'fingerprint', ARGV[1], 'schema', ARGV[2])
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return {'ok'}
