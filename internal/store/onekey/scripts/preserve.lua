-- preserve copies from another store: it makes an entry or a tombstone hold a value, or retires the
-- UID of an entry that does not exist. It needs the functions of tombstone.lua.
--
-- KEYS[1]  the entry
-- ARGV[1]  the field that holds the value, or ~retired      ARGV[2]  its text
-- ARGV[3]  time to live of a tombstone, in seconds
-- Reply: 1; 0 if the UID to retire is in use, or if the entry has too many fields
--
-- An existing field stays, unless ARGV[2] holds the value for longer than it does. If the server
-- refuses the last command, a check reports that the tombstone has the wrong time to live.
local head = redis.pcall('HMGET', KEYS[1], '~isa', ARGV[1])
if head.err then return redis.error_reply(head.err) end
local live = head[1] and head[1] ~= ''
local held = ARGV[1] ~= '~retired'
if live and not held or not head[2] and #redis.call('HKEYS', KEYS[1]) >= 12000 then return 0 end
if not head[2] or held and (tonumber(head[2]) or 0) < tonumber(ARGV[2]) then
  local reply = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
if not live then end_tombstone(KEYS[1], ARGV[3]) end
return 1
