-- restoreheld writes the SRK of a value that an entry, or a tombstone, holds, if the SRK is absent.
-- If the SRK already names the entry, it expires no earlier than requested. An SRK without a time
-- to live stays: the entry has the value, or claims it.
--
-- KEYS[1]  the SRK      ARGV[1]  the entry
-- ARGV[2]  what follows the entry in a new SRK
-- ARGV[3]  when the SRK expires, in milliseconds of the server's clock
-- Reply: 1 if the SRK names the entry, else 0
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
local time, reply = redis.call('TIME'), nil
local life = math.max(1, ARGV[3] - time[1] * 1000 - math.floor(time[2] / 1000))
local text = string.format('%.0f', life)
if not seen then
  reply = redis.pcall('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', text)
elseif seen ~= ARGV[1] and string.sub(seen, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
  return 0
else
  local left = redis.pcall('PTTL', KEYS[1])
  if type(left) == 'number' and left >= 0 and left < life then
    left = redis.pcall('PEXPIRE', KEYS[1], text)
  end
  reply = left
end
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return 1
