-- trim removes some of the oldest entries of a feed if they are too old, or if the feed is too
-- large.
--
-- KEYS[1]  the stream
-- ARGV[1]  maximum size in bytes      ARGV[2]  maximum age in milliseconds
-- Reply: the number of entries that are left
local clock = redis.call('TIME')
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', clock[1] * 1000 + clock[2] / 1000 - ARGV[2]), 'LIMIT', 10000)
local length, used = redis.call('XLEN', KEYS[1]), redis.pcall('MEMORY', 'USAGE', KEYS[1])
if type(used) == 'number' and used > tonumber(ARGV[1]) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', string.format('%.0f', length * 15 / 16), 'LIMIT', 10000)
end
return redis.call('XLEN', KEYS[1])
