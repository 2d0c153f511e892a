-- session: the sessions of an entry, a hash in its slot. After history.lua.
--
-- A member is named by the hash of a secret, and says
--   ENDS IDLE SEEN VERIFIED BEGUN BOND ORIGIN AGENT
-- when the session ends whatever is done, and how long after it was seen last, in milliseconds; when that was, when its
-- owner last gave the password, and when it began; what the entry must have for it to be good; and two escaped texts. One that was
-- ended says "- UNTIL CALL" for an hour (the last hundred do), so that a beginning which arrives late does not bring it back. Members of other forms,
-- and those whose time is over, count as absent.
--
-- The entry is not looked at, but for the lines of its history that wait: in a slot that is being migrated, no node serves
-- two keys while one of them is absent. So it does not matter either whether what is done here comes before or after a change
-- of the entry.
--
-- KEYS[1]  the record      KEYS[2]  the entry, where something is noted
-- ARGV[1]  begin | seen | verify | end | list | clear      ARGV[2]  the time, "" for the server's
-- ARGV[3]  hash of the secret      ARGV[4]  bond; to end: the call, by which it knows what it has done when it is sent again
-- ARGV[5..9]  to begin: milliseconds until it ends, and of idleness; origin, agent; how many stay, the newest, and of those
--             that were ended
-- Reply: {hash, member, …} of the sessions that it was done to; to end: {hash} or {}
local record, verb, hash, bond = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end
local function ms(n) return string.format('%.0f', n) end

-- parse takes a member apart; nil for one that counts as absent.
local function parse(text)
  local s, rest = {}, nil
  s.life, s.idle, s.seen, s.verified, s.begun, s.bond, rest = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ([^ ]+) ([^ ]* [^ ]*)$')
  if not s.life then return nil end
  for _, name in ipairs({'life', 'idle', 'seen', 'verified', 'begun'}) do
    if #s[name] > 15 then return nil end
    s[name] = tonumber(s[name])
  end
  s.rest, s.ends = s.bond .. ' ' .. rest, math.min(s.life, s.seen + s.idle)
  return s.ends > now and s or nil
end
local function member(s)
  return table.concat({ms(s.life), ms(s.idle), ms(s.seen), ms(s.verified), ms(s.begun), s.rest}, ' ')
end
-- stay has the record live until a time, at least.
local function stay(ends)
  if redis.call('PTTL', record) < ends - now then redis.call('PEXPIRE', record, ms(ends - now)) end
end
local function put(text, ends)
  local reply = redis.pcall('HSET', record, hash, text)
  if failed(reply) then return redis.error_reply(reply.err) end
  stay(ends)
  return {hash, text}
end
-- note_begun notes that the session began, unless it is good for nothing: it is bound to an epoch
-- that is over. The beginning may have been noted before then, and be sent again.
local function note_begun()
  if about == '' then return nil end
  local head = redis.pcall('HMGET', KEYS[2], '~isa', '~note', '~epoch')
  if head.err or not head[1] or head[1] == '' or head[3] ~= string.match(bond, '^[^/]*') then return nil end
  return note_beside(KEYS[2], head[2])
end

if verb == 'seen' or verb == 'verify' or verb == 'end' then
  local text = redis.pcall('HGET', record, hash)
  if failed(text) then
    if string.find(text.err, 'WRONGTYPE', 1, true) then return {} end
    return redis.error_reply(text.err)
  end
  local s = parse(text)
  if verb == 'end' and text and not string.find(text, '^%- ') then -- also one whose time is over: a clock may go back
    local refused = s and unrighted()
    if refused then return refused end
    local reply = put('- ' .. ms(now + 3600000) .. (s and ' ' .. bond or ''), now + 3600000)
    if reply.err then return reply end
    refused = s and note_beside(KEYS[2])
    if refused then error({err = refused.err}) end
    return s and {hash} or {}
  end
  if verb == 'end' and text and string.match(text, '^%- %d+ (.*)$') == bond then -- sent again
    local refused = marked() and note_beside(KEYS[2])
    return refused or {hash}
  end
  if not s or verb == 'end' then return {} end
  if verb == 'verify' then
    if s.bond ~= bond then return {} end
    s.verified = now
    return put(member(s), s.ends)
  end
  s.seen = math.max(s.seen, now)
  return put(member(s), math.min(s.life, s.seen + s.idle))
end

local all = redis.pcall('HGETALL', record)
if failed(all) then
  if not string.find(all.err, 'WRONGTYPE', 1, true) then return redis.error_reply(all.err) end
  if verb == 'begin' then redis.call('UNLINK', record) end
  all = {}
end
local open, over, swept, last, begun, found = {}, {}, {}, 0, nil, {}
for i = 1, #all, 2 do
  local s, ended = parse(all[i + 1]), tonumber((string.match(all[i + 1], '^%- (%d+)')))
  if all[i] == hash then begun = all[i + 1] end
  if s and verb == 'clear' and s.bond == bond then s = nil end
  if s then
    s.name = all[i]
    open[#open + 1] = s
    last = math.max(last, s.ends)
    if s.bond == bond then found[#found + 1], found[#found + 2] = s.name, all[i + 1] end
  elseif ended and ended > now then
    last = math.max(last, ended)
    over[#over + 1] = {name = all[i], ended = ended}
  else
    swept[#swept + 1] = all[i]
  end
end
if verb == 'list' then return found end
if verb == 'begin' then
  if begun then -- sent again
    local refused = marked() and note_begun()
    return refused or {hash, begun}
  end
  table.sort(open, function(a, b) return a.begun > b.begun end)
  for i = tonumber(ARGV[9]), #open do swept[#swept + 1] = open[i].name end
  -- Of those that were ended as many stay: else who signs in and out all the time makes each beginning slower.
  table.sort(over, function(a, b) return a.ended > b.ended end)
  for i = tonumber(ARGV[9]), #over do swept[#swept + 1] = over[i].name end
  local s = {life = now + ARGV[5], idle = tonumber(ARGV[6]), seen = now, verified = now, begun = now}
  s.rest = table.concat({bond, ARGV[7], ARGV[8]}, ' ')
  s.ends = math.min(s.life, now + s.idle)
  local refused = unrighted()
  if refused then return refused end
  found = put(member(s), s.ends)
  if found.err then return found end
elseif last == 0 then
  redis.call('UNLINK', record)
  return {}
end
for _, name in ipairs(swept) do redis.call('HDEL', record, name) end
local refused = verb == 'begin' and note_begun()
if refused then error({err = refused.err}) end
return verb == 'begin' and found or {}
