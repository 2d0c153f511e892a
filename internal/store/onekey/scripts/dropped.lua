-- dropped removes ~drop from an entry whose moved records have all been deleted.
--
-- KEYS[1]  the entry      ARGV[1]  the expected value of ~drop
-- Reply: 1
if redis.call('HGET', KEYS[1], '~drop') == ARGV[1] then redis.call('HDEL', KEYS[1], '~drop') end
return 1
