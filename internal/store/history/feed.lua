-- feed appends lines of an entry's history to one part of a cluster's feed, the oldest first. These
-- are the lines that the part lacks, except those whose marks end with a hyphen; history.lua
-- describes lines and marks. The script needs the functions of history.lua.
--
-- KEYS[1]  the names of the lines added last, separated by spaces, in the slot of the part
-- KEYS[2]  the part, a stream
-- Reply: the number of lines added
--
-- Any process may run the script, any number of times, at any time. Lines are added in order: if a
-- line is in the stream, so are all lines before it. KEYS[1] keeps the names for two hours, so a
-- line of the last hour is in the stream only if KEYS[1] has its name. An earlier line is looked up
-- in the stream near the time in its number, because a line is normally added within two seconds of
-- that time. If a line is added later, KEYS[1] keeps the names for as long as the history is kept.
local hour, soon = 3600000, 2000 -- milliseconds
local added = redis.pcall('GET', KEYS[1])
added = type(added) == 'string' and added or ''
local clock, from, all = redis.call('TIME'), now() / 1000 - hour, {}
local real = clock[1] * 1000 + math.floor(clock[2] / 1000)
for line in string.gmatch(lines, '[^\n]+') do
  if string.sub(name_of(line), -1) ~= '-' then all[#all + 1] = line end
end

local function text_of(line) return prk .. ' ' .. (string.match(line, '^%S+ %S+ %S+ %S+ %S+ %S+') or line) end
local function ms_of(line) return (number_of(line) or 0) / 1000 end

-- in_stream reports whether a line of more than an hour ago is, or may have been, in the stream.
local function in_stream(line)
  local at, text = ms_of(line), '\n' .. text_of(line) .. '\n'
  local begin = redis.pcall('XRANGE', feed, '-', '+', 'COUNT', '1')
  if begin.err or #begin == 0 then return false end
  if tonumber(string.match(begin[1][1], '^%d+')) > at + soon then
    return redis.call('XLEN', feed) >= 1000 -- a shorter stream was never trimmed
  end
  local first, last = string.format('%.0f', math.floor(at - soon)), string.format('%.0f', math.ceil(at + soon))
  for _ = 1, 10 do
    local some = redis.call('XRANGE', feed, first, last, 'COUNT', '1000')
    for _, one in ipairs(some) do
      if string.find('\n' .. one[2][2] .. '\n', text, 1, true) then return true end
    end
    if #some < 1000 then return false end
    first = '(' .. some[#some][1]
  end
  return true -- unknown; adding it again would risk adding it twice
end

local first = #all + 1
while first > 1 do
  local line = all[first - 1]
  if string.find(' ' .. added, ' ' .. name_of(line) .. ' ', 1, true) then break end
  if ms_of(line) < from and (ms_of(line) < from - life or in_stream(line)) then break end
  first = first - 1
end
if first > #all then return 0 end

local new, names, late = {}, added, redis.call('PTTL', KEYS[1]) > 2 * hour
for i = first, #all do
  new[#new + 1] = text_of(all[i])
  names = names .. name_of(all[i]) .. ' '
  late = late or math.abs(real - ms_of(all[i])) > soon
end
while #names > 4096 do names = string.match(names, ' (.*)') end
local kept = late and life or string.format('%d', 2 * hour)
local refused = save(KEYS[1], names, kept)
if refused then return refused end
local id, add_error = add(table.concat(new, '\n'))
if add_error then
  save(KEYS[1], added, kept) -- the lines were not added
elseif not late and tonumber(string.match(id, '^%d+')) > real + soon then
  save(KEYS[1], names, life) -- the clock was ahead: in_stream would not find the lines
end
return add_error or #new
