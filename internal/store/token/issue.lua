-- issue stores a token beside a live entry without changing its rev. It needs the functions of
-- tokens.lua and history.lua.
--
-- KEYS[1]  the entry          KEYS[2]  the record of its tokens, in the same slot; without it the
--            token waits in the entry
-- ARGV[1]  type               ARGV[2]  the rev that was read, which is the first twelve characters
--                                      of ~rev, "" for none
-- ARGV[3]  hash of the secret ARGV[4], ARGV[5]  PURPOSE and FIELDS; see tokens.lua
-- ARGV[6]  value              ARGV[7]  how long it is valid, in milliseconds
-- ARGV[8]  maximum number of tokens
-- ARGV[9]  the time, "" for the server's
-- Reply: {"ok"} | {"absent"} | {"conflict"}
--
-- If the script is sent twice, there is one token (I7), even if the entry changed in between and
-- left the token valid. ~tokens is written after the record: until then, the first token of an
-- entry is not valid, and ended tokens stay ended.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~tokens', '~note')
if head.err then return redis.error_reply(head.err) end
if head[1] ~= ARGV[1] then return {'absent'} end
local now = clock(ARGV[9])
local tokens = read_tokens(KEYS[2], head[3], now)
if tokens.err then return redis.error_reply(tokens.err) end
local mine, newest, first_word = nil, 0, '1' .. string.sub(ARGV[3], 1, 6)
for _, t in ipairs(tokens.open) do
  if t.name == ARGV[3] then mine = t end
  newest = math.max(newest, t.number)
end
if mine then -- sent again: finish what may be unfinished
  -- A change that read the record before this token was in it must be refused. ~tokens must
  -- therefore differ from the value that the change read. If there is a newer token, it has already
  -- changed ~tokens.
  if not mine.waits and mine.number == newest then
    redis.call('HSET', KEYS[1], '~tokens', first_word .. string.sub(head[3], #tokens.first_word + 1))
  end
  local refused = marked() and note_beside(KEYS[1], head[4])
  return refused or {'ok'}
end
if string.sub(head[2] or '', 1, 12) ~= ARGV[2] then return {'conflict'} end
local refused = permission_error()
if refused then return refused end
local ends = string.format('%.0f', now + ARGV[7])
local number = newest + 1
-- Without KEYS[2] the record was not read, and the number must also exceed those in the record.
if not KEYS[2] then number = math.max(number, math.floor(now / 1000)) end
local text = table.concat({ends, string.format('%.0f', number), ARGV[4], ARGV[5], ARGV[6]}, ' ')
table.sort(tokens.open, function(a, b) return a.number > b.number end)
-- If there are too many tokens, the oldest one of the most frequent kind is removed. So strangers,
-- who can ask for tokens of a few kinds, do not push out tokens of other kinds. Tokens with the
-- same PURPOSE and FIELDS are of one kind.
local function kind_of_token(t) return t.purpose .. ' ' .. t.fields end
local frequency = {[ARGV[4] .. ' ' .. ARGV[5]] = 1}
for _, t in ipairs(tokens.open) do
  local kind = kind_of_token(t)
  frequency[kind] = (frequency[kind] or 0) + 1
end
while #tokens.open >= tonumber(ARGV[8]) do
  local at = #tokens.open
  for i = at - 1, 1, -1 do
    if frequency[kind_of_token(tokens.open[i])] > frequency[kind_of_token(tokens.open[at])] then at = i end
  end
  local gone = table.remove(tokens.open, at)
  frequency[kind_of_token(gone)] = frequency[kind_of_token(gone)] - 1
  if not gone.waits then tokens.swept[#tokens.swept + 1] = gone.name end
end
if KEYS[2] then
  if tokens.foreign then redis.call('UNLINK', KEYS[2]) end
  local members = {ARGV[3], text}
  for _, t in ipairs(tokens.open) do
    if t.waits then
      members[#members + 1] = t.name
      members[#members + 1] = t.waits
      t.waits = nil
    end
  end
  local first, put, swept = redis.pcall('HSET', KEYS[2], unpack(members)), {}, tokens.swept
  if type(first) == 'table' then return redis.error_reply(first.err) end
  -- Do not remove a member that the HSET above has just written. The swept names include it if an
  -- earlier run stored it and then failed to write ~tokens, so that it did not count.
  tokens.swept = {}
  for i = 1, #members, 2 do put[members[i]] = true end
  for _, name in ipairs(swept) do
    if not put[name] then tokens.swept[#tokens.swept + 1] = name end
  end
  tokens.open[#tokens.open + 1] = token_of(ARGV[3], text, now)
  write_tokens(KEYS[2], tokens)
  redis.call('HSET', KEYS[1], '~tokens', first_word)
else
  local t = token_of(ARGV[3], text, now)
  t.waits = text
  tokens.open[#tokens.open + 1] = t
  if tokens.first_word == '' then tokens.first_word = '0' end
  if ended_in(head[3]) ~= '' then tokens.ended = {string.sub(ended_in(head[3]), 2)} end
  local first = redis.pcall('HSET', KEYS[1], '~tokens', mark_of(tokens))
  if type(first) == 'table' then return redis.error_reply(first.err) end
end
refused = note_beside(KEYS[1], head[4])
if refused then error({err = refused.err}) end
return {'ok'}
