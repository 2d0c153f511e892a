-- accept accepts the answer of a passkey that signs in without a ticket.
--
-- The answer to a challenge signs in once. The member "spent/HASH" marks it as used; HASH is the
-- hash of the challenge. The value is "UNTIL ATTEMPT". UNTIL, in milliseconds, is when the mark is
-- no longer needed, because the script then refuses the answer. ATTEMPT shows that a call was sent
-- again. Only answers that sign in are marked.
--
-- ticket.lua describes the value of a factor and which numbers a passkey accepts.
--
-- KEYS[1]  the record
-- ARGV[1]  the time, "" for the server's       ARGV[2]  the hash of the challenge
-- ARGV[3]  until when the answer may sign in   ARGV[4]  the attempt
-- ARGV[5]  name of the factor                  ARGV[6]  the counter of the passkey
-- ARGV[7]  the maximum number of marks
-- ARGV[8]  origin                              ARGV[9]  the maximum number of origins
-- Reply: {"ok"}; {} if there is no such factor; {"used"} if the answer has signed in before, is too
-- old, or has a counter that is not accepted; {"full", how long to wait in milliseconds}
local record, mark, attempt, name, counter = KEYS[1], 'spent/' .. ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local now, ends = tonumber(ARGV[1]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function ms(n) return string.format('%.0f', n) end
local all = redis.pcall('HGETALL', record)
if all.err then return redis.error_reply(all.err) end
local number, first, stale, value, oldest, at = 0, nil, {}, nil, nil, nil
local origins, known = 0, false
for i = 1, #all, 2 do
  if all[i] == name then
    value = all[i + 1]
  elseif all[i] == mark then
    return {string.match(all[i + 1], '^%d+ (.*)$') == attempt and 'ok' or 'used'}
  elseif string.sub(all[i], 1, 6) == 'spent/' then
    local til = tonumber((string.match(all[i + 1], '^(%d+) '))) or 0
    if til <= now then
      stale[#stale + 1] = all[i]
    else
      number, first = number + 1, math.min(first or til, til)
    end
  elseif string.sub(all[i], 1, 7) == 'origin/' then
    origins, known = origins + 1, known or all[i] == 'origin/' .. ARGV[8]
    local used = tonumber(all[i + 1]) or 0
    if used > now then used = 0 end -- the clock was wrong; ticket.lua does the same
    if not at or used < at then oldest, at = all[i], used end
  end
end
local made, label, accepted, sealed = string.match(value or '', '^(%d+) %d+ ([^ ]*) ([^ ]*) ([^ ]+)$')
if not made then return {} end
local last = tonumber((string.match(accepted, '^(%d+):'))) or 0
if ends <= now or last > 0 and tonumber(counter) <= last then return {'used'} end
if number >= tonumber(ARGV[7]) then return {'full', ms(first - now)} end
local writes = {
  mark, ms(ends) .. ' ' .. attempt,
  name, table.concat({made, ms(now), label, counter .. ':' .. attempt, sealed}, ' '),
}
if ARGV[8] ~= '' then
  writes[5], writes[6] = 'origin/' .. ARGV[8], ms(now)
  if not known and origins >= tonumber(ARGV[9]) then
    stale[#stale + 1] = oldest
    stale[#stale + 1] = 'tries/' .. string.sub(oldest, 8)
  end
end
local reply = redis.pcall('HSET', record, unpack(writes))
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
for _, gone in ipairs(stale) do redis.call('HDEL', record, gone) end
return {'ok'}
