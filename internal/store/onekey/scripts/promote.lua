-- promote: what was laid ready before an entry was committed becomes its tertiary record.
--
-- KEYS[1]  what was laid ready, in the same slot      KEYS[2]  the tertiary record
-- ARGV[1]  "join": into the set that is there         "replace": over what is there
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if ARGV[1] == 'join' then
  local reply = redis.pcall('SUNIONSTORE', KEYS[2], KEYS[2], KEYS[1])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
  redis.call('UNLINK', KEYS[1])
else
  -- Its time to live goes first: the record must not go when that is over.
  local reply = redis.pcall('PERSIST', KEYS[1])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
  redis.call('RENAME', KEYS[1], KEYS[2])
end
return 1
