-- invite stores an invitation in the record that will hold the tokens of its future entry. It needs
-- the functions of tokens.lua.
--
-- KEYS[1]  the record of the tokens
-- ARGV[1]  hash of the secret      ARGV[2], ARGV[3]  PURPOSE and FIELDS; see tokens.lua
-- ARGV[4]  value                   ARGV[5]  how long it is valid, in milliseconds
-- ARGV[6]  the time, "" for the server's
-- Reply: {"ok", member} | {"exists"}: the record has another valid token, or another Redis type
--
-- If the record already has the invitation, it does not change: if the script is sent twice, there
-- is one invitation (I7). The invitation is valid while there is no entry. The change that creates
-- the entry spends it.
local now = clock(ARGV[6])
local tokens = read_tokens(KEYS[1], '1', now)
if tokens.err then return redis.error_reply(tokens.err) end
for _, t in ipairs(tokens.open) do
  if t.name == ARGV[1] then return {'ok', redis.call('HGET', KEYS[1], ARGV[1])} end
end
if #tokens.open > 0 or tokens.foreign then return {'exists'} end
local text = table.concat({string.format('%.0f', now + ARGV[5]), '1', ARGV[2], ARGV[3], ARGV[4]}, ' ')
local first = redis.pcall('HSET', KEYS[1], ARGV[1], text)
if type(first) == 'table' then return redis.error_reply(first.err) end
for i, name in ipairs(tokens.swept) do
  -- The token of this name had expired, and was written again above.
  if name == ARGV[1] then table.remove(tokens.swept, i) break end
end
tokens.open[1] = token_of(ARGV[1], text, now)
write_tokens(KEYS[1], tokens)
return {'ok', text}
