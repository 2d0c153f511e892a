-- promote: what was laid ready before an entry was committed becomes its tertiary record. It
-- happens once: where nothing lies ready any more, the record stays as it is.
--
-- KEYS[1]  what was laid ready, in the same slot      KEYS[2]  the tertiary record
-- ARGV[1]  "join": into the set that is there         "replace": over what is there
--          "drop": what is there goes, and so does what was laid ready, an empty string
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
local reply
if ARGV[1] == 'join' then
  reply = redis.pcall('SUNIONSTORE', KEYS[2], KEYS[2], KEYS[1])
elseif ARGV[1] == 'drop' then
  reply = redis.pcall('UNLINK', KEYS[1], KEYS[2])
else
  -- Its time to live goes first: the record must not go when that is over.
  reply = redis.pcall('PERSIST', KEYS[1])
end
if type(reply) == 'table' then return redis.error_reply(reply.err) end
if ARGV[1] == 'join' then redis.call('UNLINK', KEYS[1]) end
if ARGV[1] == 'replace' then redis.call('RENAME', KEYS[1], KEYS[2]) end
return 1
