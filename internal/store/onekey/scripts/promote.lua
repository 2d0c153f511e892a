-- promote runs after a commit, and moves the record that was prepared before the commit to its
-- place. It does so only once: if there is no prepared record, it does not change the tertiary
-- record.
--
-- KEYS[1]  the prepared record, in the same slot      KEYS[2]  the tertiary record
-- KEYS[3]  where to move the old record if it is replaced or dropped; without KEYS[3], the script
--          deletes it
-- ARGV[1]  "join": add to the existing set         "replace": replace the existing record
--          "drop": delete the existing record and the prepared one, which is an empty string
-- ARGV[2]  "1" if the record is a small indexed set; otherwise Redis frees the old record in the
--          background
-- Reply: 1, or 0 if there is no prepared record
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local function failed(reply) return type(reply) == 'table' and reply.err end
if ARGV[1] == 'join' then
  local reply = redis.pcall('SUNIONSTORE', KEYS[2], KEYS[2], KEYS[1])
  if failed(reply) then return redis.error_reply(reply.err) end
  redis.call('UNLINK', KEYS[1])
  return 1
end
local reply, moved = nil, false
if ARGV[1] == 'replace' then
  -- Remove the time to live first, so that the new record does not expire.
  reply = redis.pcall('PERSIST', KEYS[1])
  if failed(reply) then return redis.error_reply(reply.err) end
end
if KEYS[3] and redis.call('EXISTS', KEYS[2]) == 1 then
  reply = redis.pcall('RENAME', KEYS[2], KEYS[3])
  if failed(reply) then return redis.error_reply(reply.err) end
  moved = true
end
if ARGV[1] == 'replace' then
  if ARGV[2] ~= '1' then redis.call('UNLINK', KEYS[2]) end
  reply = redis.pcall('RENAME', KEYS[1], KEYS[2])
elseif moved then
  reply = redis.pcall('UNLINK', KEYS[1])
else
  reply = redis.pcall('UNLINK', KEYS[1], KEYS[2])
end
if not failed(reply) then return 1 end
if moved then redis.call('RENAME', KEYS[3], KEYS[2]) end -- otherwise nobody would know where it is
return redis.error_reply(reply.err)
