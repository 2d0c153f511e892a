-- finishtombstone finishes a delete or a fence that the server refused halfway (I4). A fence is the
-- hash that a cluster writes at an absent entry to stop changes that began earlier. It needs the
-- functions of tokens.lua and tombstone.lua.
--
-- KEYS[1]  the entry      KEYS[2]  the record of its tokens, if the first reply was 2
-- ARGV[1]  time to live of a tombstone, in seconds
-- Reply: 1 if the record is a tombstone that will expire or whose UID is retired; 2 if the script
--        needs KEYS[2]; 0 if the record is a live entry, absent or damaged
local isa = redis.pcall('HGET', KEYS[1], '~isa')
if type(isa) == 'table' then return redis.error_reply(isa.err) end
if isa and isa ~= '' then return 0 end
if not isa then
  local fields = redis.call('HKEYS', KEYS[1])
  for _, field in ipairs(fields) do
    if string.sub(field, 1, 1) ~= '~' then return 0 end
  end
  if #fields == 0 then return 0 end
end
local mark = redis.call('HGET', KEYS[1], '~tokens')
if mark and not KEYS[2] then return 2 end
for name in string.gmatch(ended_in(mark or ''), '[^ ]+') do
  local reply = redis.pcall('HDEL', KEYS[2], name)
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
end_tombstone(KEYS[1], ARGV[1])
if isa then strip(KEYS[1], true) end
if mark then redis.call('HDEL', KEYS[1], '~tokens') end
return 1
