-- note: a note by itself, of something that was done without one, or will be. After history.lua.
--
-- KEYS[1]  the entry
-- Reply: 1, or 0 where it is not live
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~note')
if head.err then return redis.error_reply(head.err) end
if not head[1] or head[1] == '' then return 0 end
local refused, keep = note('', head[2] or nil)
if refused then return refused end
if keep == '' then
  redis.call('HDEL', KEYS[1], '~note')
elseif keep then
  local reply = redis.pcall('HSET', KEYS[1], '~note', keep)
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
return 1
