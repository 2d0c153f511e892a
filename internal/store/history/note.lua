-- note adds lines to the history about a change that other commands made. It needs the functions of
-- history.lua.
--
-- KEYS[1]  the entry
-- Reply: 1, or 0 if the entry is not live
--
-- If the script is sent again, it adds no line twice: it recognizes each line by its mark, which is
-- the name at the end of the line.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~note')
if head.err then return redis.error_reply(head.err) end
if not head[1] or head[1] == '' then return 0 end
return note_beside(KEYS[1], head[2]) or 1
