-- filled: all that was laid ready for an entry has been moved over.
--
-- KEYS[1]  the entry      ARGV[1]  what ~fill says
if redis.call('HGET', KEYS[1], '~fill') == ARGV[1] then redis.call('HDEL', KEYS[1], '~fill') end
return 1
