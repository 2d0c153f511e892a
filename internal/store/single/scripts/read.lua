-- read returns an entry with some of its tertiary records, or the beginnings of large ones, as they
-- are at one moment.
--
-- KEYS[1]  the entry
-- KEYS[2..]  tertiary records
-- ARGV[1]  about how many elements of a record to read
-- ARGV[2..]  the Redis type expected of each record
-- Reply: {the entry: field, value, …; for each record: {its type, its elements, where the rest
-- begins, or "" if that was all}}
local entry = redis.pcall('HGETALL', KEYS[1])
if entry.err then return redis.error_reply(entry.err) end
local reply, count = {entry}, tonumber(ARGV[1])
for i = 2, #KEYS do
  local key, kind = KEYS[i], redis.call('TYPE', KEYS[i]).ok
  local items, rest = {}, ''
  if kind == ARGV[i] then
    if kind == 'set' or kind == 'hash' then
      local page = redis.call(kind == 'set' and 'SSCAN' or 'HSCAN', key, '0', 'COUNT', ARGV[1])
      items, rest = page[2], page[1] ~= '0' and page[1] or ''
    elseif kind == 'list' then
      items = redis.call('LRANGE', key, '0', count - 1)
      if #items == count then rest = ARGV[1] end
    elseif kind == 'zset' then
      items = redis.call('ZRANGE', key, '0', count - 1, 'WITHSCORES')
      if #items == 2 * count then rest = ARGV[1] end
    elseif kind == 'string' then items = {redis.call('GET', key)}
    end
  end
  reply[i] = {kind, items, rest}
end
return reply
