-- This source precedes scripts that run a command on a tertiary record.

local size_commands = {SADD = 'SCARD', HSET = 'HLEN', ZADD = 'ZCARD', ZINCRBY = 'ZCARD', LPUSH = 'LLEN', RPUSH = 'LLEN'}
local find_commands = {HSET = 'HEXISTS', ZADD = 'ZSCORE', ZINCRBY = 'ZSCORE'}

-- full reports whether a command would add members to a record and leave it with more of them than
-- the given limit; the limit 0 means any number. If full cannot find out, it returns false and the
-- error. It checks which members the record already has only if there may be too many.
local function full(key, command, args, limit)
  if limit == 0 or not size_commands[command] then return false end
  local n = redis.pcall(size_commands[command], key)
  if type(n) == 'table' then return false, n.err end
  local step = find_commands[command] and 2 or 1
  if n + #args / step <= limit then return false end
  if step == 1 and command ~= 'SADD' then return true end
  local new = 0
  for i = 1, command == 'SADD' and #args or 0, 2000 do
    for _, present in ipairs(redis.call('SMISMEMBER', key, unpack(args, i, math.min(i + 1999, #args)))) do new = new + 1 - present end
  end
  for i = 1, step == 2 and #args or 0, 2 do
    local has = redis.pcall(find_commands[command], key, args[command == 'HSET' and i or i + 1])
    if type(has) == 'table' then return false, has.err end
    if not has or has == 0 then new = new + 1 end
  end
  return new > 0 and n + new > limit
end

-- run_command runs a command in parts, because unpack cannot return all arguments of a long one. It
-- returns the last reply of an LPUSH or RPUSH, and the sum of the replies of any other command. If
-- a part fails, run_command returns nil, the error, and whether earlier parts were run.
local function run_command(key, command, args)
  local reply
  local step = (command == 'HSET' or command == 'ZADD') and 2000 or 1999
  for i = 1, math.max(#args, 1), step do
    local part = redis.pcall(command, key, unpack(args, i, math.min(i + step - 1, #args)))
    if type(part) == 'table' and part.err then return nil, part.err, i > 1 end
    if i == 1 or string.find(command, 'PUSH') then reply = part else reply = reply + part end
  end
  return reply
end
