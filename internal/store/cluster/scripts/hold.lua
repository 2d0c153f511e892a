-- hold gives the SRK of a held value its time to live, if it still has exactly the value that was
-- read before the commit. It is part of step 5 of the protocol in apply.go.
--
-- KEYS[1]  the SRK      ARGV[1]  the value that was read
-- ARGV[2]  when the SRK expires, in milliseconds of the server's clock
-- Reply: 1 if the SRK expires then, else 0
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
if seen ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local rest = ARGV[2] - time[1] * 1000 - math.floor(time[2] / 1000)
local reply = redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', math.max(1, rest)))
if type(reply) == 'table' then return redis.error_reply(reply.err) end
return 1
