-- fence: step 2. Answers whether an entry holds a value, which no other entry can have then (I2). If it does not,
-- whatever was prepared on it before can no longer be committed (I1).
--
-- KEYS[1]  the entry      ARGV[1]  type      ARGV[2], ARGV[3]  secondary field and canonical value
-- ARGV[4]  "look": only ask      ARGV[5]  seconds that a tombstone lives
-- Reply: 1 if the entry is live and holds the value, else 0
local q = redis.pcall('HMGET', KEYS[1], '~isa', '~skv:' .. ARGV[2], ARGV[2])
if q.err then return 0 end -- no hash: no commit can succeed there either
if q[1] == ARGV[1] and q[1] ~= '' and (q[2] or q[3]) == ARGV[3] then return 1 end
if ARGV[4] == 'look' then return 0 end
local tombstone = redis.call('PTTL', KEYS[1]) ~= -1 -- absent, or it lives for a time; a damaged hash stays
local n = redis.pcall('HINCRBY', KEYS[1], '~fence', 1)
if type(n) == 'table' then return redis.error_reply(n.err) end
if tombstone then redis.call('EXPIRE', KEYS[1], ARGV[5]) end
return 0
