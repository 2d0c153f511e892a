-- align adds an entry to an index set, or removes it, depending on the values of the entry (I5).
--
-- KEYS[1]  the index set
-- KEYS[2]  the entry
-- KEYS[3]  the tertiary set that must have the value, if any
-- ARGV[1]  the member that stands for the entry
-- ARGV[2]  a field
-- ARGV[3]  the value that the field must have, as its first or a further value; with KEYS[3], the
--          member that the tertiary set must have
-- Reply: 1 if the entry is in the index now, else 0
local kind = redis.call('TYPE', KEYS[1]).ok
local due = false
local head = redis.pcall('HMGET', KEYS[2], '~isa', ARGV[2])
if not head.err and head[1] and head[1] ~= '' then
  if KEYS[3] then
    due = redis.pcall('SISMEMBER', KEYS[3], ARGV[3]) == 1
  else
    due = head[2] == ARGV[3]
    -- A further value is in the index as it is written.
    local prefix = '~also:' .. ARGV[2] .. ':'
    local fields = due and {} or redis.call('HGETALL', KEYS[2])
    for i = 1, #fields, 2 do
      if string.sub(fields[i], 1, #prefix) == prefix then
        local written = string.match(fields[i + 1], '^[^ ]* [^ ]* [^ ]* (.*)$') or string.sub(fields[i], #prefix + 1)
        due = due or written == ARGV[3]
      end
    end
  end
end
if not due then
  if kind == 'set' then redis.call('SREM', KEYS[1], ARGV[1]) end
  return 0
end
if kind ~= 'set' and kind ~= 'none' then redis.call('UNLINK', KEYS[1]) end
redis.call('SADD', KEYS[1], ARGV[1])
return 1
