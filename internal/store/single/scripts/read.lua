-- read: an entry with tertiary records of its own, as they are at one moment.
--
-- KEYS[1]  the entry, then tertiary records     ARGV  of each of those the Redis type it is asked as
-- Reply: {the entry: field, value, …; of each record: {its type, what is in it}}
local entry = redis.pcall('HGETALL', KEYS[1])
if entry.err then return redis.error_reply(entry.err) end
local reply = {entry}
for i = 2, #KEYS do
  local key, kind = KEYS[i], redis.call('TYPE', KEYS[i]).ok
  local items = {}
  if kind == ARGV[i - 1] then
    if kind == 'set' then items = redis.call('SMEMBERS', key)
    elseif kind == 'list' then items = redis.call('LRANGE', key, '0', '-1')
    elseif kind == 'zset' then items = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES')
    elseif kind == 'hash' then items = redis.call('HGETALL', key)
    elseif kind == 'string' then items = {redis.call('GET', key)}
    end
  end
  reply[i] = {kind, items}
end
return reply
