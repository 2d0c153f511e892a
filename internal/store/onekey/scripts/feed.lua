-- feed: puts those lines of an entry's history into its part of a cluster's feed that it lacks, in their order. After history.lua.
--
-- KEYS[1]  the names of those that came last, for two hours, in the slot of the part: separated by spaces
-- KEYS[2]  the part, a stream
-- Reply: how many there were
--
-- Any process may do it, any number of times. What is older than an hour is there, or its writer died.
local fed = redis.pcall('GET', KEYS[1])
local from, names, new = now() - hour * 1000, type(fed) == 'string' and fed or '', {}
for line in string.gmatch(lines, '[^\n]+') do
  local name = name_of(line) .. ' '
  if number_of(line) > from and not string.find(names, name, 1, true) then
    new[#new + 1] = prk .. ' ' .. string.match(line, '^%S+ %S+ %S+ %S+ %S+ %S+')
    names = names .. name
  end
end
if #new == 0 then return 0 end
local id, refused = add(table.concat(new, '\n'))
if refused then return refused end
while #names > 4096 do names = string.match(names, ' (.*)') end
redis.call('SET', KEYS[1], names, 'PX', '7200000')
return #new
