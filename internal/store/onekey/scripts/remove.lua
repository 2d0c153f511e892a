-- remove removes a record, or one member of a set, that is wrong or belongs to no live entry. It
-- first checks that this is still so (I1, I4).
--
-- KEYS[1]  the record          KEYS[2]  the entry it belongs to, if any
-- KEYS[n]  ~/schema/TYPE, as the last key, if ARGV[7] is not ""
-- ARGV[1]  the Redis type that the record should have: the record is removed only if it has another
--          type; "" to skip this check
-- ARGV[2]  "1" if the record must be exactly the string ARGV[3]
-- ARGV[4]  the set member to remove, or "" for the whole record
-- ARGV[5], ARGV[6]  with KEYS[2], a secondary field and its canonical value: nothing is removed if
--                   the entry has or holds that value, or if it is live and ARGV[5] is "";
--                   without KEYS[2], a field and value that the record, a hash, must have, or ""
-- ARGV[7]  the fingerprint that the stored schema must have, or ""
-- ARGV[8]  server time in milliseconds until which the stored schema is known, or ""
-- Reply: 1 if it was removed, else 0; -1 if the stored schema is, or may be, another one
if ARGV[7] ~= '' and redis.pcall('HGET', KEYS[#KEYS], 'fingerprint') ~= ARGV[7] then return -1 end
if ARGV[8] ~= '' then
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[8]) then return -1 end
end
if #KEYS > (ARGV[7] ~= '' and 2 or 1) then
  local q = redis.pcall('HMGET', KEYS[2], '~isa', '~skv:' .. ARGV[5], ARGV[5], '~also:' .. ARGV[5] .. ':' .. ARGV[6], '~held:' .. ARGV[5] .. ':' .. ARGV[6])
  if q.err == nil and q[1] and q[1] ~= '' and (ARGV[5] == '' or (q[2] or q[3]) == ARGV[6] or q[4]) then return 0 end
  if q.err == nil and q[5] then
    local time = redis.call('TIME')
    if time[1] * 1000 + math.floor(time[2] / 1000) < (tonumber(q[5]) or 0) then return 0 end
  end
elseif ARGV[5] ~= '' and redis.pcall('HGET', KEYS[1], ARGV[5]) ~= ARGV[6] then
  return 0
end
local kind = ARGV[1] ~= '' and redis.call('TYPE', KEYS[1]).ok
if kind and (kind == 'none' or kind == ARGV[1]) then return 0 end
if ARGV[2] == '1' and redis.pcall('GET', KEYS[1]) ~= ARGV[3] then return 0 end
local reply
if ARGV[4] ~= '' then
  reply = redis.pcall('SREM', KEYS[1], ARGV[4])
else
  reply = redis.pcall('UNLINK', KEYS[1])
end
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
return reply
