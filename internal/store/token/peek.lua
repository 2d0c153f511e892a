-- peek returns a token that has not expired, and does not change it. The caller must check in the
-- entry's ~tokens that the token has not been voided. peek needs the functions of tokens.lua.
--
-- KEYS[1]  the record of an entry's tokens, or the entry, whose ~tokens holds new tokens while its
--          slot is being migrated (tokens.lua: they "wait" there)
-- ARGV[1]  hash of the secret      ARGV[2]  the time, "" for the server's
-- ARGV[3]  "waiting" if KEYS[1] is the entry
-- Reply: {member, milliseconds for which it is still valid} | {}
local text = redis.pcall('HGET', KEYS[1], ARGV[3] == 'waiting' and '~tokens' or ARGV[1])
if type(text) == 'table' then
  if string.find(text.err, 'WRONGTYPE', 1, true) then return {} end
  return redis.error_reply(text.err)
end
if ARGV[3] == 'waiting' and text then
  local _, at = string.find(text, '\n' .. ARGV[1] .. ' ', 1, true)
  text = at and string.match(text, '[^\n]+', at + 1)
end
local now = clock(ARGV[2])
local token = text and token_of(ARGV[1], text, now)
if not token then return {} end
return {text, string.format('%.0f', token.ends - now)}
