-- swap: compares an SRK with exactly what was seen, and sets or removes it (I1).
--
-- KEYS[1]  the SRK      ARGV[1]  what was seen      ARGV[2]  what it becomes; "": it goes
-- Reply: 1 if it is so now; 0 if something else was there
local seen = redis.pcall('GET', KEYS[1])
if type(seen) == 'table' then return redis.error_reply(seen.err) end
if seen == ARGV[1] then
  if ARGV[2] == '' then redis.call('UNLINK', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
  return 1
end
return (ARGV[2] ~= '' and seen == ARGV[2]) and 1 or 0
