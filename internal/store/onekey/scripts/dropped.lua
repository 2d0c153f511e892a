-- dropped removes ~drop from an entry. The field names records that a change moved aside, because
-- they were too large to delete at once. The caller has deleted all of them.
--
-- KEYS[1]  the entry      ARGV[1]  the expected value of ~drop
-- Reply: 1
if redis.call('HGET', KEYS[1], '~drop') == ARGV[1] then redis.call('HDEL', KEYS[1], '~drop') end
return 1
