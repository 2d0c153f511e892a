-- dying begins or ends the removal of the records of a dead entry. It is part of step 6 of the
-- protocol in apply.go. During a removal, the entry cannot be created again.
--
-- KEYS[1]  the entry      ARGV[1]  the mark of this removal, twelve characters
-- ARGV[2]  "begin" or "end"      ARGV[3]  time to live of a tombstone, in seconds
-- ARGV[4]  with "end": marks of processes that have died, which are removed as well
-- Reply: 1; 0 if the entry is live
--
-- ~dying holds the marks of all removals under way, and ~since the times at which they began, in
-- seconds and in the same order.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~dying', '~since')
if head.err then return redis.error_reply(head.err) end
if head[1] and head[1] ~= '' then return 0 end
local remaining, times, seconds = '', '', {}
for second in string.gmatch(head[3] or '', '%d+') do seconds[#seconds + 1] = second end
for i = 1, #(head[2] or ''), 12 do
  local mark = string.sub(head[2], i, i + 11)
  local ended = mark == ARGV[1]
  for j = 1, #ARGV[4], 12 do ended = ended or mark == string.sub(ARGV[4], j, j + 11) end
  if not ended then
    remaining = remaining .. mark
    times = times .. (seconds[(i + 11) / 12] or '0') .. ' '
  end
end
if ARGV[2] == 'begin' then
  local life = redis.call('PTTL', KEYS[1])
  local reply = redis.pcall('HSET', KEYS[1], '~dying', remaining .. ARGV[1], '~since', times .. redis.call('TIME')[1])
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
  if life ~= -1 and life < ARGV[3] * 1000 then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
elseif remaining == '' then
  redis.call('HDEL', KEYS[1], '~dying', '~since')
else
  redis.call('HSET', KEYS[1], '~dying', remaining, '~since', times)
end
return 1
