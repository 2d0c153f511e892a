-- commit: step 4. An entry changes here and nowhere else (I6, I7).
--
-- KEYS[1]  the entry
-- ARGV[1]  token      ARGV[2]  create | update | mend | delete
-- ARGV[3], ARGV[4]  ~rev (its first twelve characters) and ~fence as they were read, "" for none
-- ARGV[5]  seconds that a tombstone lives      ARGV[6]  what ~dying says, "" for nothing that is left to do
-- ARGV[7]  how many fields to unset, then those, then field, value, …
-- Reply: {"ok"} | {"exists" | "absent" | "conflict" | "dying" | "filling", ~rev} | {"damaged"}
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~dying', '~fill')
if head.err then return redis.error_reply(head.err) end
local live, past, fence, dying = head[1] and head[1] ~= '', head[2] or '', head[3] or '', head[4]
for i = 1, #past, 12 do
  if string.sub(past, i, i + 11) == ARGV[1] then return {'ok'} end
end
local function has_facets()
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 1) ~= '~' then return true end
  end
end
if ARGV[2] == 'create' then
  if live then return {'exists', past} end
  if dying then return {'dying', past} end
  if has_facets() then return {'damaged'} end
elseif not live and not (ARGV[2] == 'mend' and has_facets()) then
  return {'absent', past}
end
if string.sub(past, 1, 12) ~= ARGV[3] or fence ~= ARGV[4] then return {'conflict', past} end

local remember = ARGV[1] .. string.sub(past, 1, 36)
if ARGV[2] == 'delete' then
  if head[5] then return {'filling', past} end -- what was laid ready must not outlive the entry
  local gone = redis.pcall('UNLINK', KEYS[1])
  if type(gone) == 'table' then return redis.error_reply(gone.err) end
  redis.call('HSET', KEYS[1], '~rev', remember)
  if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], '~dying', ARGV[6], '~since', redis.call('TIME')[1]) end
  redis.call('EXPIRE', KEYS[1], ARGV[5])
  return {'ok'}
end
local n = tonumber(ARGV[7])
local first = redis.pcall('HSET', KEYS[1], '~rev', remember)
if type(first) == 'table' then return redis.error_reply(first.err) end
for i = 8 + n, #ARGV, 2000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
for i = 8, 7 + n do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('HDEL', KEYS[1], '~fence')
if ARGV[2] == 'create' then redis.call('PERSIST', KEYS[1]) end
return {'ok'}
