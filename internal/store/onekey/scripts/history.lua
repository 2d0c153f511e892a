-- history: what every script begins with that notes what became of an entry.
--
-- The record is a text beside the entry, in its slot, of lines
--   NUMBER KIND WHO ORIGIN FIELDS PURPOSE
-- the newest last: at most a hundred, of 90 days. A number is the time in microseconds, and greater than that of the line before.
-- On one server a line goes into the feed, too: a stream of texts of lines "PRK LINE", with a hyphen for the number. On a cluster, in a
-- slot that is being migrated, no node serves two keys while one of them is absent: there ~note of the entry has lines, until they can be
-- put into the record. They have their time as the last word where they have another number there.
--
-- The last argument is "" where nothing is noted. Else it says which of them the last KEYS are, b(oth), r(ecord), f(eed) or n(one), and
-- then the time in milliseconds, none for the server's. Before it stand the lines to be noted, without numbers but for feed.lua; the
-- PRK; and how many entries the feed has at most.

local about, lines, prk, most, feed, record = table.remove(ARGV), nil, nil, nil, nil, nil
if about ~= '' then
  lines, prk, most = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local last = string.sub(about, 1, 1)
  if last == 'b' or last == 'f' then feed = table.remove(KEYS) end
  if last == 'b' or last == 'r' then record = table.remove(KEYS) end
end
local life, hour = '7776000000', '3600000' -- milliseconds

-- now is the time in microseconds, in digits: the one that is given, or that at which something came into the feed, or the server's.
local function now(id)
  if #about > 1 then return string.sub(about, 2) .. '000' end
  if id then
    local at = string.find(id, '-', 1, true)
    return string.sub(id, 1, at - 1) .. string.sub('00' .. string.sub(id, at + 1), -3)
  end
  local clock = redis.call('TIME')
  return clock[1] .. string.sub('00000' .. clock[2], -6)
end

-- add puts a text into the feed, and returns its ID.
local function add(text)
  local id = redis.pcall('XADD', feed, 'MAXLEN', '~', most, '*', 'e', text)
  if type(id) == 'table' and id.err then return nil, redis.error_reply(id.err) end
  return id
end

-- feed_text are lines of the entry as the feed has them.
local function feed_text()
  if not string.find(lines, '\n', 1, true) then return prk .. ' - ' .. lines end
  local text = {}
  for line in string.gmatch(lines, '[^\n]+') do text[#text + 1] = prk .. ' - ' .. line end
  return table.concat(text, '\n')
end

local function keep(in_record, text, milliseconds)
  local reply = redis.pcall('SET', in_record, text, 'PX', milliseconds)
  if reply.err then return redis.error_reply(reply.err) end
end

-- read are the lines of the record of the last so many milliseconds. Those of an entry that was here before go an hour after the next
-- was made.
local function read(milliseconds, time)
  local past, all = redis.pcall('GET', record), {}
  if type(past) ~= 'string' then past = '' end -- of another Redis type it goes
  for line in string.gmatch(past, '[^\n]+') do
    local number, kind = string.match(line, '^(%d+) (%l+)')
    number = tonumber(number or '0')
    if kind == 'create' and number < time - hour * 1000 then all = {} end
    if number > time - milliseconds * 1000 then all[#all + 1] = line end
  end
  return all
end

-- put_on puts lines at the end of others, with numbers. Those that have one already, which is too small by now, have it as
-- their last word then.
local function put_on(all, some, time)
  for line in string.gmatch(some, '[^\n]+') do
    local was, rest = string.match(line, '^(%d+) (.*)$')
    local n = math.max(tonumber(was or time), string.match(all[#all] or '-1', '^-?%d+') + 1)
    if not was then
      line = string.format('%.0f ', n) .. line
    elseif n > tonumber(was) then
      line = string.format('%.0f ', n) .. rest .. ' ' .. was
    end
    all[#all + 1] = line
  end
end

-- note is the first thing that a script writes. how: create; delete, after which the record stays for an hour, for the feed of a
-- cluster, or not at all; "" for others. It returns what the server refuses, nil where it does not, and what ~note of the entry
-- becomes, nil where that stays as it is.
local function note(how, pending)
  if about == '' then return nil end
  if not pending or how == 'create' then pending = '' end
  local id, refused
  if feed and lines ~= '' then
    id, refused = add(feed_text())
    if refused then return refused end
  end
  local time, all = tonumber(now(id)), {}
  if how == 'create' and id then
    put_on(all, lines, time)
    return keep(record, table.concat(all, '\n'), life)
  end
  if not record then
    for line in string.gmatch(pending, '[^\n]+') do all[#all + 1] = line end
    put_on(all, lines, time)
    return nil, how ~= 'delete' and table.concat(all, '\n') or nil
  end
  if how == 'delete' and feed then
    redis.call('UNLINK', record)
    return nil
  end
  all = read(how == 'create' and hour or life, time)
  put_on(all, pending .. '\n' .. lines, time)
  while #all > 100 do table.remove(all, 1) end
  if #all > 0 then refused = keep(record, table.concat(all, '\n'), how == 'delete' and hour or life) end
  return refused, pending ~= '' and '' or nil
end
