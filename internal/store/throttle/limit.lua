-- limit counts one use against a limit per period. It is exact, even if many calls arrive at once.
--
-- KEYS[1]  a counter: "N UNTIL", the number of uses, and the time at which the period ends
-- ARGV[1]  the limit      ARGV[2]  length of the period in milliseconds
-- ARGV[3]  the time, "" for the server's
-- Reply: milliseconds to wait, 0 if the use was counted. If the script is sent again, it counts
--        again.
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local text = redis.pcall('GET', KEYS[1])
if type(text) == 'table' then
  if not string.find(text.err, 'WRONGTYPE', 1, true) then return redis.error_reply(text.err) end
  text = false
end
local n, ends = string.match(text or '', '^(%d%d?%d?%d?%d?%d?) (%d+)$')
n, ends = tonumber(n or '0'), tonumber(ends or '0')
if not ends or ends <= now or ends > now + ARGV[2] then n, ends = 0, now + ARGV[2] end
if n >= tonumber(ARGV[1]) then return ends - now end
local reply = redis.pcall('SET', KEYS[1], string.format('%d %.0f', n + 1, ends), 'PX', string.format('%.0f', ends - now))
if reply.err then return redis.error_reply(reply.err) end
return 0
