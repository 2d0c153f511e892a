-- follow follows one SRK to its entry in one step (I2, I4). The caller checks that the entry has
-- the value.
--
-- KEYS[1]  the SRK
-- ARGV[1]  the prefix of the namespace
-- Reply: nil | field, value, …, "~srv", PRK
local srv = redis.pcall('GET', KEYS[1])
if type(srv) ~= 'string' then return srv end
local prk = string.match(srv, '^[^ ]*')
local entry = redis.pcall('HGETALL', ARGV[1] .. prk)
if entry.err then return entry end
entry[#entry + 1] = '~srv'
entry[#entry + 1] = prk
return entry
