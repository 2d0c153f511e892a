-- prepare: return what an entry is before a change is prepared on it. A tombstone's life begins
-- anew: it must not expire while anything that was prepared on it can arrive, or its revs and
-- fences would recur.
--
-- KEYS[1]  the entry      ARGV[1]  seconds that a tombstone lives
-- Reply: {~isa, ~rev, ~fence, ~dying, ~fill, seconds since the last removal began}, "" for none
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~dying', '~fill', '~since')
if head.err then return redis.error_reply(head.err) end
if (not head[1] or head[1] == '') and redis.call('PTTL', KEYS[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
for i = 1, 6 do head[i] = head[i] or '' end
local last = 0
for second in string.gmatch(head[6], '%d+') do last = math.max(last, tonumber(second)) end
if head[6] ~= '' then head[6] = string.format('%d', redis.call('TIME')[1] - last) end
return head
