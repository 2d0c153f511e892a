-- ready: lays members ready for a tertiary record of an entry that is not committed yet.
--
-- KEYS[1]  the place beside the record, of one attempt alone      ARGV[1]  seconds that it lives
-- ARGV[2]  the command that puts members in                       ARGV[3…]  the members
-- It may arrive twice, also behind itself: members that are there go first.
redis.call('UNLINK', KEYS[1])
for i = 3, #ARGV, 2000 do
  redis.call(ARGV[2], KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
