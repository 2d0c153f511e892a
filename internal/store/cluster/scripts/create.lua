-- create makes the usual commit of a create: the key does not exist, so no tokens can end, and the
-- change writes no history. It replies and writes what commit.lua would for the same arguments, but
-- takes a quarter less of the server's time, since it needs none of the functions that the sources
-- after it define. It leaves every other commit to commit.lua, including one that is sent again.
if ARGV[2] == 'create' and #KEYS == 1 and #ARGV < 2000 and ARGV[15] == '0'
  and ARGV[3] .. ARGV[4] .. ARGV[10] .. ARGV[13] .. ARGV[#ARGV] == ''
  and redis.pcall('EXISTS', KEYS[1]) == 0 then
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[7]) then return {'late', ''} end
  local reply = redis.pcall('HSET', KEYS[1], '~rev', ARGV[1], unpack(ARGV, 16, #ARGV - 1))
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
  return {'ok'}
end
