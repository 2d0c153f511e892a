-- This source precedes every script that reads or ends the single-use tokens of an entry.
--
-- The tokens are a hash beside the entry, in its slot: the token record. The name of a member is
-- the hash of a secret, and its value is
--   UNTIL NUMBER PURPOSE FIELDS VALUE
-- UNTIL is when the token expires, in milliseconds. Newer tokens have a greater NUMBER. FIELDS
-- lists what the token is bound to, in hexadecimal digits separated by slashes: fields, or single
-- values of a field. PURPOSE and VALUE are escaped. Expired members and those of another form count
-- as absent.
--
-- The field ~tokens of the entry says which members count. Without it, none do. Removing this one
-- field therefore ends all tokens, and an entry that is created again inherits none. The first line
-- of ~tokens holds "1" and some letters of the name of the newest token, and then the names of
-- tokens that have ended but may still be in the record. A change that ends tokens writes ~tokens
-- and ~rev with one command, so that the tokens end even if the server then refuses to remove their
-- members.
--
-- While a slot is being migrated, there may be no node that serves the record and the entry
-- together. A new token then waits in ~tokens, as a line "NAME MEMBER" after the first line, until
-- the next token is issued, which moves waiting tokens into the record. A change then uses a copy
-- of the record that was read earlier. If ~tokens is unchanged since, the copy lacks no token,
-- because issuing a token always changes ~tokens. If the first line begins with "0" instead of "1",
-- no member of the record counts.

local function clock(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- token_of returns the parts of a member, or nil if it counts as absent.
local function token_of(name, text, now)
  local ends, number, purpose, fields = string.match(text, '^(%d+) (%d+) ([^ ]+) ([^ ]*) ')
  ends = tonumber(ends)
  if not ends or ends <= now then return nil end
  return {name = name, ends = ends, number = tonumber(number), purpose = purpose, fields = fields}
end

-- may_have_tokens reports whether an entry with the given ~tokens may have tokens.
local function may_have_tokens(mark) return mark and mark ~= '' end

-- needs_record reports whether some of the tokens may be in the record.
local function needs_record(mark) return may_have_tokens(mark) and string.sub(mark, 1, 1) ~= '0' end

-- members_of returns the members of a record that was read earlier, given as lines "NAME MEMBER".
local function members_of(text)
  local all = {}
  for name, member in string.gmatch(text, '([^ \n]+) ([^\n]+)') do
    all[#all + 1] = name
    all[#all + 1] = member
  end
  return all
end

-- read_tokens returns a table with these fields:
--   open        the valid tokens; those that wait in ~tokens have their member in waits
--   swept       the names of all other members of the record, which may be removed
--   ended       the names of those members that ~tokens lists as ended
--   first_word  the first word of ~tokens
--   now         the time
--   foreign     true if the record could not be read, for example because it has another Redis type
--   err         the error of reading the record, unless that was WRONGTYPE
-- record is the key of the record, a result of members_of, or nil if the record is not needed.
local function read_tokens(record, mark, now)
  local tokens, ended_names = {open = {}, swept = {}, ended = {}, now = now}, {}
  local first_line, waiting_lines = string.match(mark or '', '^([^\n]*)\n?(.*)$')
  tokens.first_word = string.match(first_line, '^[^ ]*')
  for name in string.gmatch(first_line, '[^ ]+') do ended_names[name] = true end
  local waiting, all = members_of(waiting_lines), record
  for i = 1, #waiting, 2 do
    local t = token_of(waiting[i], waiting[i + 1], now)
    if t then
      t.waits = waiting[i + 1]
      tokens.open[#tokens.open + 1] = t
    end
  end
  if type(record) ~= 'table' then all = record and redis.pcall('HGETALL', record) or {} end
  if all.err then
    if not string.find(all.err, 'WRONGTYPE', 1, true) then tokens.err = all.err end
    tokens.foreign = true
    return tokens
  end
  for i = 1, #all, 2 do
    local t = needs_record(mark) and token_of(all[i], all[i + 1], now)
    if t and ended_names[t.name] then
      tokens.ended[#tokens.ended + 1] = t.name
      t = nil
    end
    if t then tokens.open[#tokens.open + 1] = t else tokens.swept[#tokens.swept + 1] = all[i] end
  end
  return tokens
end

-- ended_in returns the names of ended tokens in ~tokens of an entry or a tombstone, each after a
-- space.
local function ended_in(mark) return string.match(mark or '', '^[^ \n]+( [^\n]*)') or '' end

-- mark_of returns the new value of ~tokens.
local function mark_of(tokens)
  local words, text = {tokens.first_word}, nil
  for _, name in ipairs(tokens.ended) do words[#words + 1] = name end
  text = table.concat(words, ' ')
  for _, t in ipairs(tokens.open) do
    if t.waits then text = text .. '\n' .. t.name .. ' ' .. t.waits end
  end
  return text
end

local function to_hex(name)
  return (string.gsub(name, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

-- plan_token_endings finds out which tokens of an entry a change ends, and writes nothing. Its
-- argument e holds:
--   all      "1" if all tokens end
--   now      the time
--   spend    a token that must be valid; otherwise the result's refused is true
--   purpose  the purpose of that token; all tokens with this purpose end
--   touched  the facets that the change sets or unsets
--   gone     the names by which tokens are bound to values that the entry loses, as in FIELDS
--   made     true if the change creates the entry of an invitation
-- In the result, open holds the tokens that stay. mark is the new value of ~tokens, which must be
-- written together with the rev, or nil if ~tokens does not change. After a token has ended,
-- ~tokens lists it for as long as its member is in the record. This also shows whether an
-- invitation has already created its entry.
local function plan_token_endings(record, mark, e)
  if not may_have_tokens(mark) then return {open = {}, refused = e.spend ~= ''} end
  local tokens = read_tokens(record, mark, clock(e.now))
  local stay, touched, left, gone = {}, {}, #tokens.ended, false
  tokens.refused = e.spend ~= ''
  for _, field in ipairs(e.touched) do touched[to_hex(field)] = true end
  for name in string.gmatch(e.gone or '', '%x+') do touched[name] = true end
  for _, t in ipairs(tokens.open) do
    if t.name == e.spend and t.purpose == e.purpose then tokens.refused = false end
    local goes = e.all == '1' or e.spend ~= '' and t.purpose == e.purpose
    for field in string.gmatch(t.fields, '%x+') do goes = goes or touched[field] end
    gone = gone or goes
    if not goes then
      stay[#stay + 1] = t
    elseif not t.waits then
      tokens.swept[#tokens.swept + 1] = t.name
      tokens.ended[#tokens.ended + 1] = t.name
    end
  end
  tokens.open = stay
  if #stay == 0 and left == 0 and not e.made then
    tokens.mark = ''
  elseif gone or left > 0 then
    tokens.mark = mark_of(tokens)
  end
  return tokens
end

-- write_tokens removes the members that are not valid tokens, and lets the record expire when the
-- last token does. It does nothing if record is a copy that was read earlier.
local function write_tokens(record, tokens)
  if type(record) ~= 'string' then return end
  local last = 0
  for _, t in ipairs(tokens.open) do
    if not t.waits then last = math.max(last, t.ends) end
  end
  if last == 0 then
    redis.call('UNLINK', record)
    return
  end
  for _, name in ipairs(tokens.swept) do redis.call('HDEL', record, name) end
  redis.call('PEXPIRE', record, string.format('%.0f', last - tokens.now))
end

-- finish_tokens does the work that follows a change of the entry: it removes ended tokens, and
-- their names from ~tokens.
local function finish_tokens(entry, record, tokens)
  write_tokens(record, tokens)
  if tokens.mark == '' then
    redis.call('HDEL', entry, '~tokens')
  elseif tokens.mark and type(record) == 'string' then
    tokens.ended = {}
    if #tokens.open == 0 then redis.call('HDEL', entry, '~tokens') else redis.call('HSET', entry, '~tokens', mark_of(tokens)) end
  end
end
