-- fence reports whether an entry has a value, or has given it up and still holds it. If so, no
-- other entry can have it (I2). If not, and ARGV[4] is "fence", the script fences the entry, so
-- that changes already prepared on it can no longer commit (I1). The script is part of step 2 of
-- the protocol in apply.go.
--
-- KEYS[1]  the entry      ARGV[1]  its type
-- ARGV[2], ARGV[3]  secondary field and canonical value
-- ARGV[4]  "fence", or "look" to change nothing
-- ARGV[5]  time to live of a tombstone, in seconds
-- Reply: 1 if the entry is live and has the value, 2 if it holds the value, else 0
local q = redis.pcall('HMGET', KEYS[1], '~isa', '~skv:' .. ARGV[2], ARGV[2], '~also:' .. ARGV[2] .. ':' .. ARGV[3], '~held:' .. ARGV[2] .. ':' .. ARGV[3])
if q.err then return 0 end -- not a hash: no commit can succeed there either
if q[1] == ARGV[1] and q[1] ~= '' and ((q[2] or q[3]) == ARGV[3] or q[4]) then return 1 end
if q[5] then
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) < (tonumber(q[5]) or 0) then return 2 end
end
if ARGV[4] == 'look' then return 0 end
-- An absent entry becomes a tombstone. A damaged hash gets no time to live. A tombstone that lives
-- longer, because it holds values, keeps its time to live. A hash with only ~fence and no time to
-- live was left by a fence whose last command was refused.
local life = redis.call('PTTL', KEYS[1])
local n = redis.pcall('HINCRBY', KEYS[1], '~fence', 1)
if type(n) == 'table' then return redis.error_reply(n.err) end
if life == -1 and not q[1] and #redis.call('HKEYS', KEYS[1]) == 1 then life = 0 end
if life ~= -1 and life < ARGV[5] * 1000 then redis.call('EXPIRE', KEYS[1], ARGV[5]) end
return 0
