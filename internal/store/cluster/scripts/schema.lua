-- schema compares a schema with ~/schema/TYPE, and stores it if there is none.
--
-- KEYS[1]  ~/schema/TYPE      ARGV[1]  fingerprint      ARGV[2]  schema
-- ARGV[3]  "1" if it may be stored
-- ARGV[4…]  fields with the names of tertiary records that the caller may write; the caller writes
--           such a record only after the script has set the field
-- Reply: {"ok", milliseconds of this server's clock} | {"schema", the stored one, which differs}
--      | {"unstored"} if none is stored, and this one may not be
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.pcall('HGET', KEYS[1], 'fingerprint')
if type(stored) == 'table' then return redis.error_reply(stored.err) end
if stored == ARGV[1] then
  for i = 4, #ARGV do
    if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
      local reply = redis.pcall('HSET', KEYS[1], ARGV[i], '1')
      if type(reply) == 'table' then return redis.error_reply(reply.err) end
    end
  end
  return {'ok', now}
end
if stored then return {'schema', redis.call('HGET', KEYS[1], 'schema') or ''} end
if ARGV[3] ~= '1' then return {'unstored'} end
local named = {}
for i = 4, #ARGV do named[2 * i - 7], named[2 * i - 6] = ARGV[i], '1' end
local reply = redis.pcall('HSET', KEYS[1], 'fingerprint', ARGV[1], 'schema', ARGV[2], unpack(named))
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return {'ok', now}
