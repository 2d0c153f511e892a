-- restate: replaces what is stored of a schema, in one step, if it is still what was seen.
--
-- KEYS[1]  ~/schema/TYPE      ARGV[1]  the fingerprint seen, "" for none
-- ARGV[2], …                  all fields of the new state: field, value, …; the first is the fingerprint;
--                             none: nothing shall be stored
-- Reply: 1 if it is so now, else 0
local stored = redis.call('HGET', KEYS[1], 'fingerprint') or ''
if stored ~= ARGV[1] then return stored == ARGV[3] and 1 or 0 end
redis.call('UNLINK', KEYS[1])
if #ARGV > 1 then redis.call('HSET', KEYS[1], unpack(ARGV, 2)) end
return 1
