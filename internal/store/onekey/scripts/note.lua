-- note: a note by itself, of something that was done in other commands. After history.lua.
--
-- KEYS[1]  the entry. Sent again, it is one note, by the mark of the line.
-- Reply: 1, or 0 where it is not live
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~note')
if head.err then return redis.error_reply(head.err) end
if not head[1] or head[1] == '' then return 0 end
return note_beside(KEYS[1], head[2]) or 1
