-- spent marks a single-use value as spent, if it is not marked yet.
--
-- KEYS[1]  the mark, which expires      ARGV[1]  the name of this call
-- ARGV[2]  milliseconds for which the mark stays
-- Reply: 1 if this call set the mark, now or when it was sent before; otherwise 0
local set = redis.pcall('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if type(set) == 'table' and set.err then return redis.error_reply(set.err) end
if set then return 1 end
local by = redis.pcall('GET', KEYS[1])
return by == ARGV[1] and 1 or 0
