-- schema: what ~/schema/TYPE says, stored where nothing is.
--
-- KEYS[1]  ~/schema/TYPE      ARGV[1]  fingerprint      ARGV[2]  schema      ARGV[3]  "1": it may be stored
-- Reply: {"ok", milliseconds of this server's clock} | {"schema", stored} | {"unstored"}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.pcall('HGET', KEYS[1], 'fingerprint')
if type(stored) == 'table' then return redis.error_reply(stored.err) end
if stored == ARGV[1] then return {'ok', now} end
if stored then return {'schema', redis.call('HGET', KEYS[1], 'schema') or ''} end
if ARGV[3] ~= '1' then return {'unstored'} end
local reply = redis.pcall('HSET', KEYS[1], 'fingerprint', ARGV[1], 'schema', ARGV[2])
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return {'ok', now}
