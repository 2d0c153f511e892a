-- prepare: return the type, the rev and the marks of an entry that a change is about to be prepared
-- on. A tombstone gets its full time to live again: if it expired while a command of that change is
-- still on its way, its revs and fences would be used a second time.
--
-- KEYS[1]  the entry      ARGV[1]  seconds that a tombstone lives
-- Reply: {~isa, ~rev, ~fence, ~dying, ~fill, seconds since the last removal began}; each is "" if
-- the entry has no such field
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~dying', '~fill', '~since')
if head.err then return redis.error_reply(head.err) end
if (not head[1] or head[1] == '') and redis.call('PTTL', KEYS[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
for i = 1, 6 do head[i] = head[i] or '' end
local last = 0
for second in string.gmatch(head[6], '%d+') do last = math.max(last, tonumber(second)) end
if head[6] ~= '' then head[6] = string.format('%d', redis.call('TIME')[1] - last) end
return head
