-- feedline adds a line to a feed without adding it to a history. It needs the functions of
-- history.lua.
--
-- KEYS[1]  the stream
-- ARGV[1]  the mark of the line
-- ARGV[2]  milliseconds since the line was first sent if the feed may have it already, else ""
-- Reply: 1
if ARGV[2] ~= '' then
  local clock = redis.call('TIME')
  local since = clock[1] * 1000 + math.floor(clock[2] / 1000) - ARGV[2] - 2000
  local past = redis.pcall('XREVRANGE', feed, '+', string.format('%.0f', since), 'COUNT', 10000)
  for i = 1, past.err and 0 or #past do
    if string.sub(past[i][2][2], -#ARGV[1]) == ARGV[1] then return 1 end
  end
  -- It is unknown whether the feed has the line. Adding it would risk adding it twice.
  if not past.err and #past == 10000 then return 1 end
end
local _, refused = add(feed_text())
return refused or 1
