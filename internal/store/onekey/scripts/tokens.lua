-- tokens: what every script that looks at single-use tokens of an entry, or ends some, begins with.
--
-- They are a hash beside the entry, in its slot. A member is named by the hash of a secret, and says
--   UNTIL NUMBER PURPOSE FIELDS VALUE
-- until when it is good, in milliseconds; a number that is greater for a newer one; its purpose; the facets that
-- it is bound to, in hexadecimal digits, with slashes between; and the value, escaped as purposes are. Members of
-- other forms, and those whose time is over, count as absent. All do where the entry has no ~tokens: so
-- one field of the entry ends them all, and an entry that is created again inherits none. The field says "1" and, after
-- it, the names of members that ended with the last change: it is written with ~rev, so that they have
-- ended also where a server refuses to remove them then.

local function clock(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- token_of takes a member apart; nil for one that counts as absent.
local function token_of(name, text, now)
  local ends, number, purpose, fields = string.match(text, '^(%d+) (%d+) ([^ ]+) ([^ ]*) ')
  ends = tonumber(ends)
  if not ends or ends <= now then return nil end
  return {name = name, ends = ends, number = tonumber(number), purpose = purpose, fields = fields}
end

-- counts reports whether the entry has tokens, by what its ~tokens says.
local function counts(mark) return mark and mark ~= '' end

-- read_tokens are those that count, open, the names of all other members, swept, and those of them that ended, ended.
local function read_tokens(record, mark, now)
  local tokens, over = {open = {}, swept = {}, ended = {}, now = now}, {}
  for name in string.gmatch(mark or '', '[^ ]+') do over[name] = true end
  local all = redis.pcall('HGETALL', record)
  if all.err then
    if not string.find(all.err, 'WRONGTYPE', 1, true) then tokens.err = all.err end
    tokens.foreign = true
    return tokens
  end
  for i = 1, #all, 2 do
    local t = counts(mark) and token_of(all[i], all[i + 1], now)
    if t and over[t.name] then
      tokens.ended[#tokens.ended + 1] = t.name
      t = nil
    end
    if t then tokens.open[#tokens.open + 1] = t else tokens.swept[#tokens.swept + 1] = all[i] end
  end
  return tokens
end

local function hexed(name)
  return (string.gsub(name, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

-- end_tokens finds out what a change does to the tokens of an entry, and writes nothing. e has: all, "1" if all go;
-- now; spend, a token that must be good, or refused is true, and its purpose, all of which goes; and
-- touched, the facets that the change sets or unsets; and made, if it makes the entry of an invitation. What stays is open then, and mark what ~tokens becomes with the
-- rev, nil if it stays as it is.
local function end_tokens(record, mark, e)
  if not counts(mark) then return {open = {}, refused = e.spend ~= ''} end
  local tokens = read_tokens(record, mark, clock(e.now))
  tokens.refused = e.spend ~= ''
  local stay, touched = {}, {}
  for _, field in ipairs(e.touched) do touched[hexed(field)] = true end
  for _, t in ipairs(tokens.open) do
    if t.name == e.spend and t.purpose == e.purpose then tokens.refused = false end
    local goes = e.all == '1' or e.spend ~= '' and t.purpose == e.purpose
    for field in string.gmatch(t.fields, '%x+') do goes = goes or touched[field] end
    if goes then
      tokens.swept[#tokens.swept + 1] = t.name
      tokens.ended[#tokens.ended + 1] = t.name
    else
      stay[#stay + 1] = t
    end
  end
  tokens.open = stay
  if #stay == 0 and not e.made then
    tokens.mark = ''
  elseif #tokens.ended > 0 then
    tokens.mark = '1 ' .. table.concat(tokens.ended, ' ')
  end
  return tokens
end

-- write_tokens removes what does not count any more. The record lives as long as the last that does.
local function write_tokens(record, tokens)
  if #tokens.open == 0 then
    redis.call('UNLINK', record)
    return
  end
  for _, name in ipairs(tokens.swept) do redis.call('HDEL', record, name) end
  local last = 0
  for _, t in ipairs(tokens.open) do last = math.max(last, t.ends) end
  redis.call('PEXPIRE', record, string.format('%.0f', last - tokens.now))
end

-- finish_tokens is what follows a change of the entry: what ended is removed, and ~tokens names it no longer.
local function finish_tokens(entry, record, tokens)
  write_tokens(record, tokens)
  if tokens.mark and #tokens.open == 0 then
    redis.call('HDEL', entry, '~tokens')
  elseif tokens.mark then
    redis.call('HSET', entry, '~tokens', '1')
  end
end
