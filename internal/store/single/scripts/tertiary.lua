-- tertiary: one command on a tertiary record of a live entry, with the index sets of its members.
--
-- KEYS  as in guard, [4] the tertiary record, then the index sets to join, then those to leave.
-- ARGV  as in guard, [8] "1" for a command that writes, [9] how many sets to join, [10] the command,
--       then its arguments behind the key.
--
-- Reply: {"ok", what the command answered} | {"absent"} | {"schema", stored} | {"unstored"}

if not live then return {'absent'} end
local writes, njoin = ARGV[8] == '1', tonumber(ARGV[9])
if writes then
  local refused = refused_by_schema()
  if refused then return refused end
end
for i = 5, #KEYS do
  local n = redis.pcall('SCARD', KEYS[i])
  if failed(n) then return redis.error_reply(n.err) end
end
local args = {}
for i = 11, #ARGV do args[#args + 1] = ARGV[i] end

-- A command that fails writes nothing, and the schema is stored only behind one that did not.
local reply
local step = (ARGV[10] == 'HSET' or ARGV[10] == 'ZADD') and 2000 or 1999
if #args <= 2000 then
  reply = redis.pcall(ARGV[10], KEYS[4], unpack(args))
  if failed(reply) then return redis.error_reply(reply.err) end
else
  reply = 0
  for i = 1, #args, step do
    local part = redis.pcall(ARGV[10], KEYS[4], unpack(args, i, math.min(i + step - 1, #args)))
    if failed(part) then return redis.error_reply(part.err) end
    reply = string.find(ARGV[10], 'PUSH') and part or reply + part
  end
end
for i = 5, #KEYS do redis.call(i < 5 + njoin and 'SADD' or 'SREM', KEYS[i], prk) end
if writes then
  store_schema()
  name_tertiary(KEYS[4])
end
return {'ok', reply}
