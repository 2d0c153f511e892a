-- issue: puts a token beside a live entry, which keeps its rev. After tokens.lua and history.lua.
--
-- KEYS[1]  the entry          KEYS[2]  the record of its tokens, in the same slot
-- ARGV[1]  type               ARGV[2]  ~rev (its first twelve characters) as it was read, "" for none
-- ARGV[3]  hash of the secret ARGV[4], ARGV[5]  purpose, and the facets that it is bound to
-- ARGV[6]  value              ARGV[7]  milliseconds that it is good     ARGV[8]  how many stay, the newest
-- ARGV[9]  the time, "" for the server's
-- Reply: {"ok"} | {"absent"} | {"conflict"}
--
-- Sent twice, it is one token (I7). ~tokens comes last: before, a first token does not count, and what ended stays so.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~tokens', '~note')
if head.err then return redis.error_reply(head.err) end
if head[1] ~= ARGV[1] then return {'absent'} end
if string.sub(head[2] or '', 1, 12) ~= ARGV[2] then return {'conflict'} end
local now = clock(ARGV[9])
local tokens = read_tokens(KEYS[2], head[3], now)
if tokens.err then return redis.error_reply(tokens.err) end
local newest = 0
for _, t in ipairs(tokens.open) do
  if t.name == ARGV[3] then return {'ok'} end
  newest = math.max(newest, t.number)
end
local refused, waiting = note(KEYS[1], '', head[4])
refused = refused or settle(KEYS[1], waiting)
if refused then return refused end
if tokens.foreign then redis.call('UNLINK', KEYS[2]) end
local ends = string.format('%.0f', now + ARGV[7])
local text = table.concat({ends, string.format('%d', newest + 1), ARGV[4], ARGV[5], ARGV[6]}, ' ')
local first = redis.pcall('HSET', KEYS[2], ARGV[3], text)
if type(first) == 'table' then return redis.error_reply(first.err) end
table.sort(tokens.open, function(a, b) return a.number > b.number end)
while #tokens.open >= tonumber(ARGV[8]) do
  tokens.swept[#tokens.swept + 1] = table.remove(tokens.open).name
end
tokens.open[#tokens.open + 1] = token_of(ARGV[3], text, now)
write_tokens(KEYS[2], tokens)
if head[3] ~= '1' then redis.call('HSET', KEYS[1], '~tokens', '1') end
return {'ok'}
