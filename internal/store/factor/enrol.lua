-- enrol adds, replaces and removes factors in the record of an entry, which factor.go describes.
--
-- A factor is in force only while ~factor of its entry lists it. It is therefore stored before the
-- entry is changed, and removed afterwards: factors that are left behind have no effect.
--
-- KEYS[1]  the record
-- ARGV[1]  begin | confirm | forget | replace | read      ARGV[2]  the time, "" for the server's
-- begin:    ARGV[3] name of a pending factor, ARGV[4] how long it stays, in milliseconds,
--           ARGV[5] its value without the time at which it expires, which the script puts before
--           it, ARGV[6] maximum number of pending factors
-- confirm:  ARGV[3] name of a pending factor, "" for none, ARGV[4..] name and value of each factor
--           to store in its place
-- forget:   ARGV[3..] names of factors
-- replace:  ARGV[3] name of a factor, ARGV[4] its value, ARGV[5] the value to store
-- read:     ARGV[3..] names of members
-- Reply: {"ok"}, for "read" {"ok", time, value of each member, "" if it is absent}, or {} if there
-- is no such pending factor, or no factor that has the value
local record, verb, name = KEYS[1], ARGV[1], ARGV[3]
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function ms(n) return string.format('%.0f', n) end
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end
local function is_factor(member)
  local kind = string.match(member, '^(%l+)/')
  return kind == 'totp' or kind == 'recovery' or kind == 'passkey'
end
local function expires(text) return tonumber((string.match(text, '^(%d+) '))) or 0 end

if verb == 'begin' then
  local all = redis.pcall('HGETALL', record)
  if failed(all) then return redis.error_reply(all.err) end
  local pending, stale, factors = {}, {}, false
  for i = 1, #all, 2 do
    if is_factor(all[i]) then
      factors = true
      -- The call arrives late: the factor is already confirmed.
      if string.match(all[i], '/(.*)$') == string.sub(name, 9) then return {'ok'} end
    end
    if string.sub(all[i], 1, 8) == 'pending/' and all[i] ~= name then
      local kept = expires(all[i + 1]) > now and pending or stale
      kept[#kept + 1] = {name = all[i], ends = expires(all[i + 1])}
    end
  end
  table.sort(pending, function(a, b)
    return a.ends > b.ends or a.ends == b.ends and a.name < b.name
  end)
  for i = tonumber(ARGV[6]), #pending do stale[#stale + 1] = pending[i] end
  local reply = redis.pcall('HSET', record, name, ms(now + ARGV[4]) .. ' ' .. ARGV[5])
  if failed(reply) then return redis.error_reply(reply.err) end
  for _, gone in ipairs(stale) do redis.call('HDEL', record, gone.name) end
  local left = redis.call('PTTL', record)
  if not factors and left < tonumber(ARGV[4]) then redis.call('PEXPIRE', record, ARGV[4]) end
  return {'ok'}
elseif verb == 'confirm' then
  local stored = redis.pcall('HGET', record, ARGV[4])
  if failed(stored) then return redis.error_reply(stored.err) end
  -- The call was sent again, or an import or copy was repeated. The factor may have been used
  -- since.
  if stored and (stored == ARGV[5] or name == '') then return {'ok'} end
  if name ~= '' and (stored or expires(redis.call('HGET', record, name) or '') <= now) then
    return {} -- it has expired, or another caller has confirmed it
  end
  local writes = {}
  for i = 4, #ARGV do writes[#writes + 1] = ARGV[i] end
  local reply = redis.pcall('HSET', record, unpack(writes))
  if failed(reply) then return redis.error_reply(reply.err) end
  if name ~= '' then redis.call('HDEL', record, name) end
  redis.call('PERSIST', record)
  return {'ok'}
elseif verb == 'forget' then
  for i = 3, #ARGV do
    local reply = redis.pcall('HDEL', record, ARGV[i])
    if failed(reply) then return redis.error_reply(reply.err) end
  end
  for _, member in ipairs(redis.call('HKEYS', record)) do
    if is_factor(member) then return {'ok'} end
  end
  redis.call('PEXPIRE', record, '3600000') -- no factor is left
  return {'ok'}
elseif verb == 'read' then
  local values = {'ok', ms(now)}
  for i = 3, #ARGV do
    local value = redis.pcall('HGET', record, ARGV[i])
    if failed(value) then return redis.error_reply(value.err) end
    values[#values + 1] = value or ''
  end
  return values
end
local value = redis.pcall('HGET', record, name)
if failed(value) then return redis.error_reply(value.err) end
if value == ARGV[5] then return {'ok'} end -- sent again
if value ~= ARGV[4] then return {} end
local reply = redis.pcall('HSET', record, name, ARGV[5])
if failed(reply) then return redis.error_reply(reply.err) end
return {'ok'}
