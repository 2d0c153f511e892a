-- claim sets an SRK that is absent. It is step 1 of the protocol in apply.go (I1, I2).
--
-- KEYS[1]  the SRK      ARGV[1]  its new value: PRK, a space, the rev of this attempt
-- Reply: 1 if the SRK now has that value, else the value that it has
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
if seen and seen ~= ARGV[1] then return seen end
local reply = not seen and redis.pcall('SET', KEYS[1], ARGV[1])
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return 1
