-- limit: counts what may be done so often in a time, exactly, however many come at once.
--
-- KEYS[1]  a counter: "N UNTIL", how often by now, and when it begins anew
-- ARGV[1]  how often at most      ARGV[2]  in how many milliseconds      ARGV[3]  the time, "" for the server's
-- Reply: milliseconds to wait, 0 if it was counted. Sent again, it is counted twice.
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
