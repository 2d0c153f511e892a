-- tertiary runs one command on a tertiary record of a live entry, and updates the index sets of its
-- members. history.lua, changes.lua, command.lua and guard.lua precede it.
--
-- KEYS  as in guard.lua, then
--   [4]  the tertiary record
--   [5..]  index sets to join, then index sets to leave
-- ARGV  as in guard.lua, then
--   [8]  "1" if the command writes
--   [9]  the number of index sets to join
--   [10]  the command
--   [11]  the maximum number of members in the record, "0" for any number
--   [12..]  the arguments of the command after the key
--
-- Reply: {"ok", the reply of the command} | {"absent"} | {"filling", ~fill} | {"full"} | {"schema",
-- stored} | {"unstored"}

if not live then return {'absent'} end
-- If the entry was copied here from a cluster, the records prepared for it must be moved into place
-- first.
if head[4] then return {'filling', head[4]} end
local writes, njoin = ARGV[8] == '1', tonumber(ARGV[9])
if writes then
  local refused = refused_by_schema()
  if refused then return refused end
end
for i = 5, #KEYS do
  local n = redis.pcall('SCARD', KEYS[i])
  if failed(n) then return redis.error_reply(n.err) end
end
if #KEYS > 4 then -- only sets are indexed
  local n = redis.pcall('SCARD', KEYS[4])
  if failed(n) then return redis.error_reply(n.err) end
end
local args = {}
for i = 12, #ARGV do args[#args + 1] = ARGV[i] end
local is_full, refusal = full(KEYS[4], ARGV[10], args, writes and tonumber(ARGV[11]) or 0)
if refusal then return redis.error_reply(refusal) end
if is_full then return {'full'} end
local due, wrong = false, nil -- due: the command makes a change that the history must record
if writes and about ~= '' then
  due, wrong = changes(KEYS[4], ARGV[10], args)
  if wrong and string.find(wrong, 'WRONGTYPE', 1, true) then return redis.error_reply(wrong) end
  local refused = due and permission_error()
  if refused then return refused end
end

if writes then
  local refused = store_schema()
  if refused then return refused end
  local named = redis.pcall('HSETNX', schema, name_field(KEYS[4]), '1')
  if failed(named) then return redis.error_reply(named.err) end
end

-- A member joins the index before the set and leaves it after the set, so that a search in the
-- index never misses it (I4).
for i = 5, 4 + njoin do
  local reply = redis.pcall('SADD', KEYS[i], prk)
  if failed(reply) and i == 5 then return redis.error_reply(reply.err) end
  if failed(reply) then error({err = reply.err}) end
end
local reply, failure, partly = run_command(KEYS[4], ARGV[10], args)
if failure and not partly and njoin == 0 then return redis.error_reply(failure) end
if failure then error({err = failure}) end
for i = 5 + njoin, #KEYS do redis.call('SREM', KEYS[i], prk) end
local refused = due and note_beside(entry, head[6])
if refused then error({err = refused.err}) end
return {'ok', reply}
