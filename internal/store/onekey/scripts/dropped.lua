-- dropped: all records that a change of the entry moved away have been dropped.
--
-- KEYS[1]  the entry      ARGV[1]  what ~drop says
-- Reply: 1
if redis.call('HGET', KEYS[1], '~drop') == ARGV[1] then redis.call('HDEL', KEYS[1], '~drop') end
return 1
