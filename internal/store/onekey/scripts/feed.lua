-- feed: puts those lines of an entry's history into its part of a cluster's feed that it lacks, in their order. After history.lua.
--
-- KEYS[1]  which of them came last, for two hours, in the slot of the part     KEYS[2]  the part, a stream
-- Reply: how many there were
--
-- Any process may do it, any number of times. What is older than an hour is there, or its writer died.
local fed = redis.pcall('GET', KEYS[1])
local from, new = now() - hour * 1000, {}
if type(fed) == 'string' then from = math.max(from, tonumber(fed) or 0) end
for line in string.gmatch(lines, '[^\n]+') do
  local number = tonumber(string.match(line, '^%d+') or '0')
  if number > from then
    new[#new + 1] = prk .. ' ' .. line
    from = number
  end
end
if #new == 0 then return 0 end
local id, refused = add(table.concat(new, '\n'))
if refused then return refused end
redis.call('SET', KEYS[1], string.format('%.0f', from), 'PX', '7200000')
return #new
