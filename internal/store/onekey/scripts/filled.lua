-- filled removes ~fill from an entry. The field names records that were prepared for a change. The
-- caller has moved all of them into place.
--
-- KEYS[1]  the entry      ARGV[1]  the expected value of ~fill
-- Reply: 1
if redis.call('HGET', KEYS[1], '~fill') == ARGV[1] then redis.call('HDEL', KEYS[1], '~fill') end
return 1
