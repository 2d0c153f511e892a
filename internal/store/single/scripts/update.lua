-- update changes facets and secondary values of a live entry with few commands, which is the usual
-- case (I1, I2, I6, I7). It leaves all other cases to change.lua, which recognizes the rev if this
-- script made the change. history.lua precedes it if the change has lines for the history.
--
-- KEYS[1]  the entry
-- KEYS[2]  ~/schema/TYPE
-- KEYS[3..]  SRKs to claim, SRKs elsewhere (see change.lua), SRKs to release
-- ARGV[1]  the fingerprint of the schema
-- ARGV[2]  the PRK, relative
-- ARGV[3]  the number of SRKs to claim
-- ARGV[4]  the number of SRKs elsewhere
-- ARGV[5]  the rev that the entry must have
-- ARGV[6]  the rev to write
-- ARGV[7]  the number of fields to unset; then these fields, and then the facets to set: field,
--          value, …
-- Reply: 1 if the change was made, 0 if nothing was written

-- Locals are faster than globals.
local call, pcall, KEYS, ARGV = redis.call, redis.pcall, KEYS, ARGV
local head = pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~tokens', '~note', '~drop')
local past = head[2]
if not head[1] or head[1] == '' or not past or head[3] or head[4] or head[6] or string.sub(past, 1, 12) ~= ARGV[5] then return 0 end
if pcall('HGET', KEYS[2], 'fingerprint') ~= ARGV[1] then return 0 end
local claimed, looked, unset = 2 + ARGV[3], 2 + ARGV[3] + ARGV[4], 7 + ARGV[7]
for i = 3, looked, 2000 do -- in pieces, since unpack has a limit
  if call('EXISTS', unpack(KEYS, i, math.min(i + 1999, looked))) ~= 0 then return 0 end
end
for i = looked + 1, #KEYS do
  if pcall('GET', KEYS[i]) ~= ARGV[2] then return 0 end
end
-- The next two commands change nothing. A full server refuses the first one, and a server that
-- forbids HDEL refuses the second one.
if unset > 7 or head[5] then
  local reply = pcall('HSET', KEYS[1], '~isa', head[1])
  if type(reply) ~= 'table' then reply = pcall('HDEL', KEYS[1], '~none') end
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
if permission_error then
  local refused = permission_error()
  if refused then return refused end
end
-- SRKs that the entry takes are written before its rev. Facets and SRKs that it loses are removed
-- after its rev (I1, I4, I7).
local reply
if claimed > 2 then
  reply = pcall('SET', KEYS[3], ARGV[2])
  if reply.err then return redis.error_reply(reply.err) end
end
for i = 4, claimed do call('SET', KEYS[i], ARGV[2]) end
reply = pcall('HSET', KEYS[1], '~rev', ARGV[6] .. string.sub(past, 1, 36), unpack(ARGV, unset + 1))
if type(reply) == 'table' then
  if claimed > 2 then error({err = reply.err}) end
  return redis.error_reply(reply.err)
end
-- The history line must be written right after the rev. If a later command is refused, the next run
-- finds the change made and notes nothing.
local refused, remove_note
if note then refused, remove_note = note('', head[5]) end
if unset > 7 then call('HDEL', KEYS[1], unpack(ARGV, 8, unset)) end
for i = looked + 1, #KEYS, 2000 do call('UNLINK', unpack(KEYS, i, math.min(i + 1999, #KEYS))) end
if refused then error({err = refused.err}) end
if remove_note then call('HDEL', KEYS[1], '~note') end
return 1
