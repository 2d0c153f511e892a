-- sweep: removes a record that is not what it must be, if that is still so (I4).
--
-- KEYS[1]  the record      ARGV[1]  the Redis type that it must be of; "": it goes if it is exactly the string
-- ARGV[2]
-- Reply: 1 if it went, else 0
local kind = redis.call('TYPE', KEYS[1]).ok
local waste = kind ~= 'none' and kind ~= ARGV[1]
if ARGV[1] == '' then waste = kind == 'string' and redis.call('GET', KEYS[1]) == ARGV[2] end
if not waste then return 0 end
return redis.call('UNLINK', KEYS[1])
