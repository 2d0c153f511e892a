-- prepare reads an entry before a change is prepared on it. It also gives a tombstone its full time
-- to live again. If the tombstone expired while a command of that change was still under way, its
-- revs and fences could occur a second time.
--
-- KEYS[1]  the entry      ARGV[1]  time to live of a tombstone, in seconds
-- Reply: {~isa, ~rev, ~fence, ~dying, ~fill, seconds since the last removal began, ~retired}; each
-- is "" if the entry has no such field
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~dying', '~fill', '~since', '~retired')
if head.err then return redis.error_reply(head.err) end
local life = (not head[1] or head[1] == '') and redis.call('PTTL', KEYS[1]) or 0
if life > 0 and life < ARGV[1] * 1000 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
for i = 1, 7 do head[i] = head[i] or '' end
local last = 0
for second in string.gmatch(head[6], '%d+') do last = math.max(last, tonumber(second)) end
if head[6] ~= '' then head[6] = string.format('%d', redis.call('TIME')[1] - last) end
return head
