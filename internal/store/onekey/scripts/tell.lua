-- tell: lines in a feed, of what no history has. After history.lua.
--
-- KEYS[1]  the stream
-- Reply: 1
local id, refused = add(feed_text())
return refused or 1
