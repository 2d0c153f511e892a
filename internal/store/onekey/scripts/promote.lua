-- promote: what was laid ready before an entry was committed becomes its tertiary record. It
-- happens once: where nothing lies ready any more, the record stays as it is.
--
-- KEYS[1]  what was laid ready, in the same slot      KEYS[2]  the tertiary record
-- KEYS[3]  where the record is moved that another takes the place of, or that goes; not given where it goes in this step
-- ARGV[1]  "join": into the set that is there         "replace": over what is there
--          "drop": what is there goes, and so does what was laid ready, an empty string
-- ARGV[2]  "1": the record is an indexed set, and small; else what is replaced is freed in the background
-- Reply: 1, or 0 where nothing lies ready any more
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
  -- Its time to live goes first: the record must not go when that is over.
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
if moved then redis.call('RENAME', KEYS[3], KEYS[2]) end -- or nobody would know where it is
return redis.error_reply(reply.err)
