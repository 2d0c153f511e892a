-- trim: takes the oldest out of a feed that is too old or too large, some at a time.
--
-- KEYS[1]  the stream
-- ARGV[1]  how many bytes it has at most      ARGV[2]  for how many milliseconds it keeps what it has
-- Reply: how many entries it has now
local clock = redis.call('TIME')
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', clock[1] * 1000 + clock[2] / 1000 - ARGV[2]), 'LIMIT', 10000)
local length, used = redis.call('XLEN', KEYS[1]), redis.pcall('MEMORY', 'USAGE', KEYS[1])
if type(used) == 'number' and used > tonumber(ARGV[1]) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', string.format('%.0f', length * 15 / 16), 'LIMIT', 10000)
end
return redis.call('XLEN', KEYS[1])
