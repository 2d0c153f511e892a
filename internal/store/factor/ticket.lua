-- ticket stores, counts and spends the tickets of an entry, which are members of a hash in its
-- slot, and accepts the proofs that spend them.
--
-- A ticket's name is "ticket/" and the hash of a secret. Its value is
--   UNTIL GENERATION STEP ORIGIN ATTEMPTS
-- UNTIL is when the ticket expires, in milliseconds. GENERATION is that of the entry
-- (Entry.Generation) when its holder took the first step of a login. The ticket is valid as long as
-- the entry has this generation. STEP and ORIGIN are escaped texts. ATTEMPTS are the names of the
-- attempts at the second step, each followed by a period. An attempt is counted before it is
-- judged, so that simultaneous attempts never exceed the limit.
--
-- The value of a spent ticket is "- UNTIL GENERATION ATTEMPT". It stays for an hour, so that a late
-- "issue" does not bring the ticket back. Only the newest spent tickets stay.
--
-- Attempts that could guess a proof are also counted over all tickets: those from an origin that
-- has signed in before ("origin/ORIGIN") in "tries/ORIGIN", all others together in "tries/". The
-- value is "SINCE COUNT", and counting begins again some time after SINCE. Only wrong attempts stay
-- counted.
--
-- A proof is a number that a factor accepts: the step of a time-based code, which must be later
-- than the last one, the index of a recovery code, which is accepted once, or the counter of a
-- passkey, which must be larger than the last one unless that is 0. The value of a factor is
-- "MADE USED LABEL ACCEPTED SEALED". ACCEPTED are pairs NUMBER:ATTEMPT with commas between them.
-- The pairs show whether the proof of an attempt that is sent again was already accepted.
--
-- The script changes no other members. If the record has members other than tickets, "issue" does
-- not change its time to live, which enrol.lua sets. The script does not read the entry, because in
-- a slot that is being migrated, no node serves two keys if one of them is absent. The caller
-- therefore passes the entry's generation.
--
-- KEYS[1]  the record
-- ARGV[1]  issue | try | spend      ARGV[2]  the time, "" for the server's
-- ARGV[3]  name of the ticket       ARGV[4]  the entry's generation, to which the ticket is bound
-- ARGV[5]  for "issue", how long the ticket is valid, in milliseconds; otherwise the attempt
-- ARGV[6..9]  for "issue": step, origin, and the maximum numbers of tickets and of spent tickets
-- ARGV[6..9]  for "try": the maximum number of attempts, the origin, the maximum number of wrong
--             attempts over all tickets ("" for no maximum), and the time within which they count,
--             in milliseconds
-- ARGV[10..]  for "try": names of factors
-- ARGV[6..10] for "spend": name of the factor ("" for none), number, later | once | counter,
--             origin, and the maximum number of origins
-- Reply: {name, member} of the ticket; {} if there is no such ticket, or if it allows no further
--        attempt
--        for "try" {name, member, time, "" | "last", value of each factor}: last if no further
--        wrong attempt will be allowed; or {name, member, time, "refused", how long to wait in
--        milliseconds} if this attempt is not allowed
--        for "spend" {name}, or {name, "used"} if the factor does not accept the number
local record, verb, name, bond, attempt = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function ms(n) return string.format('%.0f', n) end
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

-- parse returns the parts of a ticket that is neither spent nor expired, or else nil.
local function parse(text)
  local ends, of, step, origin, attempts = string.match(text or '', '^(%d+) ([^ ]+) ([^ ]+) ([^ ]*) ([^ ]*)$')
  if not ends or #ends > 15 or tonumber(ends) <= now then return nil end
  return {ends = tonumber(ends), bond = of, step = step, origin = origin, attempts = attempts}
end
local function member(t) return table.concat({ms(t.ends), t.bond, t.step, t.origin, t.attempts}, ' ') end

-- budget_of returns the name of the member that counts the wrong attempts from an origin, the time
-- since which it counts, and the count. Counting begins again after the time window; 0 means never.
-- A time that is too far ahead was written when the clock was wrong, and would otherwise keep the
-- owner out until the clock reaches it.
local function budget_of(origin, window)
  local budget = 'tries/'
  if origin ~= '' and redis.call('HEXISTS', record, 'origin/' .. origin) == 1 then
    budget = budget .. origin
  end
  local text = redis.call('HGET', record, budget) or ''
  local since, count = string.match(text, '^(%d+) (%d+)$')
  since, count = tonumber(since), tonumber(count)
  if not since or window > 0 and math.abs(now - since) >= window then return budget, now, 0 end
  return budget, math.min(since, now), count -- the clock may have been ahead
end

-- oldest_origin returns the origin that a new one displaces, or nil. One with a time ahead of now
-- counts as the oldest: the clock was wrong, and it would stay longest.
local function oldest_origin(origin, maximum)
  if redis.call('HEXISTS', record, 'origin/' .. origin) == 1 then return nil end
  local all, number, oldest, at = redis.call('HGETALL', record), 0, nil, nil
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 7) == 'origin/' then
      number = number + 1
      local used = tonumber(all[i + 1]) or 0
      if used > now then used = 0 end
      if not at or used < at then oldest, at = all[i], used end
    end
  end
  return number >= maximum and oldest or nil
end

if verb ~= 'issue' then
  local text = redis.pcall('HGET', record, name)
  if failed(text) then
    if string.find(text.err, 'WRONGTYPE', 1, true) then return {} end
    return redis.error_reply(text.err)
  end
  local spent_by = string.match(text or '', '^%- %d+ (.*)$')
  if verb == 'spend' and spent_by == bond .. ' ' .. attempt then return {name} end -- sent again
  local t = parse(text)
  if not t or t.bond ~= bond then return {} end
  local counted = string.find('.' .. t.attempts, '.' .. attempt .. '.', 1, true)
  local _, tries = string.gsub(t.attempts, '%.', '')
  local reply
  if verb == 'try' then
    local state = ''
    if not counted then
      if tries >= tonumber(ARGV[6]) then return {} end
      t.attempts = t.attempts .. attempt .. '.'
      local writes = {name, member(t)}
      if ARGV[8] ~= '' then
        local budget, since, count = budget_of(ARGV[7], tonumber(ARGV[9]))
        if count >= tonumber(ARGV[8]) then
          return {name, text, ms(now), 'refused', ms(since + tonumber(ARGV[9]) - now)}
        end
        if count + 1 == tonumber(ARGV[8]) then state = 'last' end
        writes[3], writes[4] = budget, ms(since) .. ' ' .. ms(count + 1)
      end
      reply = redis.pcall('HSET', record, unpack(writes))
      if failed(reply) then return redis.error_reply(reply.err) end
      text = writes[2]
    end
    local answer = {name, text, ms(now), state}
    for i = 10, #ARGV do
      answer[#answer + 1] = redis.call('HGET', record, ARGV[i]) or ''
    end
    return answer
  end
  if not counted then return {} end
  local ends = now + 3600000
  local writes = {name, '- ' .. ms(ends) .. ' ' .. bond .. ' ' .. attempt}
  local stale
  if ARGV[6] ~= '' then
    local made, label, accepted, sealed =
      string.match(redis.call('HGET', record, ARGV[6]) or '', '^(%d+) %d+ ([^ ]*) ([^ ]*) ([^ ]+)$')
    if not made then return {name, 'used'} end
    local number, origin = ARGV[7], ARGV[9]
    if ARGV[8] == 'later' then
      if tonumber(number) <= (tonumber((string.match(accepted, '^(%d+):'))) or -1) then
        return {name, 'used'}
      end
      accepted = number .. ':' .. attempt
      local budget, since, count = budget_of(origin, 0)
      if count > 0 then
        writes[#writes + 1], writes[#writes + 2] = budget, ms(since) .. ' ' .. ms(count - 1)
      end
    elseif ARGV[8] == 'counter' then
      local last = tonumber((string.match(accepted, '^(%d+):'))) or 0
      if last > 0 and tonumber(number) <= last then return {name, 'used'} end
      accepted = number .. ':' .. attempt
    else
      if string.find(',' .. accepted, ',' .. number .. ':', 1, true) then return {name, 'used'} end
      accepted = accepted .. (accepted ~= '' and ',' or '') .. number .. ':' .. attempt
    end
    writes[#writes + 1] = ARGV[6]
    writes[#writes + 1] = table.concat({made, ms(now), label, accepted, sealed}, ' ')
    if origin ~= '' then
      stale = oldest_origin(origin, tonumber(ARGV[10]))
      writes[#writes + 1], writes[#writes + 2] = 'origin/' .. origin, ms(now)
    end
  end
  reply = redis.pcall('HSET', record, unpack(writes))
  if failed(reply) then return redis.error_reply(reply.err) end
  if stale then redis.call('HDEL', record, stale, 'tries/' .. string.sub(stale, 8)) end
  -- A record without a time to live holds more than tickets.
  local left = redis.call('PTTL', record)
  if left >= 0 and left < 3600000 then redis.call('PEXPIRE', record, '3600000') end
  return {name}
end

local all = redis.pcall('HGETALL', record)
if failed(all) then return redis.error_reply(all.err) end
local open, spent, stale, has_other_members, last, known = {}, {}, {}, false, now + ARGV[5], nil
for i = 1, #all, 2 do
  local t, ended = parse(all[i + 1]), tonumber((string.match(all[i + 1], '^%- (%d+) ')))
  if string.sub(all[i], 1, 7) ~= 'ticket/' then
    has_other_members = true
  elseif t or ended and ended > now then
    if all[i] == name then known = all[i + 1] end
    local kept = t and open or spent
    kept[#kept + 1] = {name = all[i], ends = t and t.ends or ended, origin = t and t.origin}
    last = math.max(last, t and t.ends or ended)
  elseif all[i] ~= name then -- the HSET below replaces an expired ticket of this name
    stale[#stale + 1] = all[i]
  end
end
if known then return parse(known) and {name, known} or {} end -- sent again
-- If there are too many tickets, the oldest one of the most frequent origin is removed. So somebody
-- who knows the password does not push out the ticket of the owner, who is at another origin.
local function newest_first(a, b) return a.ends > b.ends or a.ends == b.ends and a.name < b.name end
table.sort(open, newest_first)
local frequency = {[ARGV[7]] = 1}
for _, t in ipairs(open) do frequency[t.origin] = (frequency[t.origin] or 0) + 1 end
while #open >= tonumber(ARGV[8]) do
  local at = #open
  for i = at - 1, 1, -1 do
    if frequency[open[i].origin] > frequency[open[at].origin] then at = i end
  end
  local gone = table.remove(open, at)
  frequency[gone.origin] = frequency[gone.origin] - 1
  stale[#stale + 1] = gone.name
end
table.sort(spent, newest_first)
for i = tonumber(ARGV[9]) + 1, #spent do stale[#stale + 1] = spent[i].name end
local text = member({ends = now + ARGV[5], bond = bond, step = ARGV[6], origin = ARGV[7], attempts = ''})
local reply = redis.pcall('HSET', record, name, text)
if failed(reply) then return redis.error_reply(reply.err) end
if not has_other_members then redis.call('PEXPIRE', record, ms(last - now)) end
for _, gone in ipairs(stale) do redis.call('HDEL', record, gone) end
return {name, text}
