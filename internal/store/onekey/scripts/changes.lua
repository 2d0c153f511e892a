-- This source precedes scripts that check whether a command on a tertiary record would change it.

-- changes reports whether a command would change a record. If it cannot find out, for example
-- because the record has another type, it returns true and the error (without the error for SET and
-- UNLINK, which replace or remove a record of any type).
local function changes(key, command, args)
  local function run(name, ...)
    local reply = redis.pcall(name, key, ...)
    if type(reply) == 'table' and reply.err then return nil, reply.err end
    return reply
  end
  if command == 'SADD' or command == 'SREM' then
    for i = 1, #args, 2000 do
      local has, wrong = run('SMISMEMBER', unpack(args, i, math.min(i + 1999, #args)))
      if wrong then return true, wrong end
      for _, is in ipairs(has) do
        if (is == 0) == (command == 'SADD') then return true end
      end
    end
    return false
  elseif command == 'HSET' or command == 'ZADD' then
    for i = 1, #args, 2 do
      local name, value, now, wrong = args[i], args[i + 1], nil, nil
      if command == 'HSET' then now, wrong = run('HGET', name) else now, wrong = run('ZSCORE', value) end
      if wrong then return true, wrong end
      if command == 'HSET' and now ~= value then return true end
      if command == 'ZADD' and (not now or tonumber(now) ~= tonumber(name)) then return true end
    end
    return false
  elseif command == 'HDEL' or command == 'ZREM' then
    for _, name in ipairs(args) do
      local now, wrong = run(command == 'HDEL' and 'HGET' or 'ZSCORE', name)
      if now or wrong then return true, wrong end
    end
    return false
  elseif command == 'LREM' then
    local items, wrong = run('LRANGE', 0, -1)
    for _, item in ipairs(items or {}) do
      if item == args[2] then return true end
    end
    return wrong ~= nil, wrong
  elseif command == 'SET' then
    return run('GET') ~= args[1] -- a record of another type counts as a change
  elseif command == 'UNLINK' then
    return run('EXISTS') ~= 0
  elseif command == 'LPOP' or command == 'RPOP' then
    local n, wrong = run('LLEN')
    return n ~= 0, wrong
  elseif command == 'LPUSH' or command == 'RPUSH' then
    local _, wrong = run('LLEN')
    return true, wrong
  end
  -- Only ZINCRBY is left, which always counts as a change. ZCARD finds a record of another type.
  local _, wrong = run('ZCARD')
  return true, wrong
end
