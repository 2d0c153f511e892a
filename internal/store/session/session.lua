-- session reads and changes the sessions of an entry, which are a hash in its slot. It needs the
-- functions of history.lua.
--
-- A member's name is the hash of a secret. Its value is
--   LIFE IDLE SEEN VERIFIED BEGUN BOND ORIGIN AGENT
-- LIFE is when the session ends even if it is used; IDLE is how long after SEEN it ends if it is
-- not used; SEEN is when it was last used; VERIFIED is when its owner last took a step of a login,
-- such as giving the password; and BEGUN is when it began. All are in milliseconds. BOND is the
-- generation of the entry (Entry.Generation) when the session began. The session is valid as long
-- as the entry has this generation. ORIGIN and AGENT are escaped texts. Members of other forms, and
-- expired ones, count as absent.
--
-- If the session has level 2, a slash and the time at which its owner last took two steps, or
-- signed in with a passkey, follow the generation in BOND. Versions that do not know levels take
-- this for another generation. To them the session is invalid, but they keep it and can end it by
-- its secret.
--
-- The value of an ended session is "- UNTIL CALL". It stays for an hour, so that a late "begin"
-- does not bring the session back. Only the newest ended sessions stay. If the server is full, the
-- member is removed instead.
--
-- The script reads the entry only to write lines of its history, because in a slot that is being
-- migrated, no node serves two keys if one of them is absent. For the sessions it therefore does
-- not matter whether the script runs before or after a change of the entry.
--
-- KEYS[1]  the record      KEYS[2]  the entry, if lines are written to its history
-- ARGV[1]  begin | seen | verify | end | list | clear      ARGV[2]  the time, "" for the server's
-- ARGV[3]  hash of the secret
-- ARGV[4]  generation; for "end" the name of the call, which shows that the call is sent again
-- ARGV[5..12] for "begin": milliseconds until the session ends at the latest; milliseconds after
--             which it ends if it is not used; origin; agent; the maximum number of sessions, and
--             of ended sessions, of which the newest stay; the level, 1 or 2; and when the owner
--             gave the password, and took two steps, or "" if that was now
-- Reply: {hash, member, …} of the affected sessions; for "end" {hash} or {}; for "clear" {}
local record, verb, hash, bond = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end
local function ms(n) return string.format('%.0f', n) end

-- parse returns the parts of a member, or nil if it counts as absent.
local function parse(text)
  local s, rest = {}, nil
  s.life, s.idle, s.seen, s.verified, s.begun, s.bond, rest = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ([^ ]+) ([^ ]* [^ ]*)$')
  if not s.life then return nil end
  for _, name in ipairs({'life', 'idle', 'seen', 'verified', 'begun'}) do
    if #s[name] > 15 then return nil end
    s[name] = tonumber(s[name])
  end
  s.rest, s.ends = s.bond .. ' ' .. rest, math.min(s.life, s.seen + s.idle)
  s.bond = string.match(s.bond, '^([^/]*/[^/]*)/%d+$') or s.bond
  return s.ends > now and s or nil
end
local function member(s)
  return table.concat({ms(s.life), ms(s.idle), ms(s.seen), ms(s.verified), ms(s.begun), s.rest}, ' ')
end
-- extend_life makes the record live at least until ends.
local function extend_life(ends)
  if redis.call('PTTL', record) < ends - now then redis.call('PEXPIRE', record, ms(ends - now)) end
end
local function put(text, ends)
  local reply = redis.pcall('HSET', record, hash, text)
  if failed(reply) then return redis.error_reply(reply.err) end
  extend_life(ends)
  return {hash, text}
end
-- note_begun adds a line about the beginning of the session to the history, unless the session is
-- invalid because the entry's epoch has changed. If the call was sent again, the line may already
-- be there.
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
  -- End an expired session as well, because a clock may go back.
  if verb == 'end' and text and not string.find(text, '^%- ') then
    local refused = s and permission_error()
    if refused then return refused end
    local reply = put('- ' .. ms(now + 3600000) .. (s and ' ' .. bond or ''), now + 3600000)
    if reply.err and string.find(reply.err, 'OOM', 1, true) then
      -- A full server still removes members. The session ends without a line in the history and
      -- without a mark that it ended: a begin that is still on its way could start it again.
      redis.call('HDEL', record, hash)
      return s and {hash} or {}
    end
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
local open, ended_members, stale, last, begun, found = {}, {}, {}, 0, nil, {}
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
    ended_members[#ended_members + 1] = {name = all[i], ended = ended}
  else
    stale[#stale + 1] = all[i]
  end
end
if verb == 'list' then return found end
if verb == 'begin' then
  if begun then -- sent again
    local refused = marked() and note_begun()
    return refused or {hash, begun}
  end
  -- A session that began ahead of now counts as the oldest: the clock was wrong, and it would stay
  -- longest.
  local function since(s) return s.begun > now and 0 or s.begun end
  table.sort(open, function(a, b) return since(a) > since(b) end)
  for i = tonumber(ARGV[9]), #open do stale[#stale + 1] = open[i].name end
  -- Remove ended sessions beyond the same limit. Otherwise, somebody who keeps signing in and out
  -- would slow down every login.
  table.sort(ended_members, function(a, b) return a.ended > b.ended end)
  for i = tonumber(ARGV[9]), #ended_members do stale[#stale + 1] = ended_members[i].name end
  local function earlier(time) return math.min(now, tonumber(time) or now) end
  local s = {life = now + ARGV[5], idle = tonumber(ARGV[6]), seen = now, verified = earlier(ARGV[11]), begun = now}
  s.rest = table.concat({bond .. (ARGV[10] == '2' and '/' .. ms(earlier(ARGV[12])) or ''), ARGV[7], ARGV[8]}, ' ')
  s.ends = math.min(s.life, now + s.idle)
  local refused = permission_error()
  if refused then return refused end
  found = put(member(s), s.ends)
  if found.err then return found end
elseif last == 0 then
  redis.call('UNLINK', record)
  return {}
end
for _, name in ipairs(stale) do redis.call('HDEL', record, name) end
local refused = verb == 'begin' and note_begun()
if refused then error({err = refused.err}) end
return verb == 'begin' and found or {}
