-- history: what every script begins with that notes what became of an entry.
--
-- The record is a text beside the entry, in its slot, of lines
--   NUMBER KIND WHO ORIGIN FIELDS PURPOSE MARK
-- in the order in which they were noted: at most a hundred, of 90 days. NUMBER is the time in microseconds,
-- and greater than those of the lines beside which it was noted. It stays as it is, and so does the line. MARK names a line that was sent in
-- several commands, or may have been; others are named by their number.
--
-- Lines may also wait in ~note of the entry: that of a create, which saves a record, and on a cluster any,
-- in a slot that is being migrated, where no node serves two keys while one of them is absent. Whatever
-- notes something has the entry among its keys, and puts into the record what waits before what it adds.
-- A line that stands in both is one. On one server a line goes into the feed at the same time: a stream of
-- texts of lines "PRK LINE", with a hyphen for the number.
--
-- A script notes what it has done: if the server refuses one of its writes, no line tells of what
-- was not done. Lines that wait in the entry are written by the command that writes its rev.
--
-- The last argument is "" if nothing is noted. Else it says which of them the last KEYS are: b(oth),
-- r(ecord), f(eed) or n(one), and then the time in milliseconds, none for the server's. Before it stand the
-- lines to be noted, without numbers but for feed.lua; the PRK; and how many entries the feed has at most.

local about, lines, prk, most, feed, record = table.remove(ARGV), nil, nil, nil, nil, nil
if about ~= '' then
  lines, prk, most = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local last = string.sub(about, 1, 1)
  if last == 'b' or last == 'f' then feed = table.remove(KEYS) end
  if last == 'b' or last == 'r' then record = table.remove(KEYS) end
end
local life, day = '7776000000', '86400000' -- milliseconds

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

-- read returns the lines of the record of the last so many milliseconds. Those of an entry that was here
-- before go a day after the next was made.
local function read(milliseconds, time)
  local past, all = redis.pcall('GET', record), {}
  if type(past) ~= 'string' then past = '' end -- of another Redis type it goes
  for line in string.gmatch(past, '[^\n]+') do
    local number, kind = string.match(line, '^(%d+) (%l+)')
    number = tonumber(number or '0')
    if kind == 'create' and number < time - day * 1000 then all = {} end
    if number > time - milliseconds * 1000 then all[#all + 1] = line end
  end
  return all
end

-- number_of returns the number of a line, nil for one that has none yet.
local function number_of(line) return tonumber(string.match(line, '^(%d+) ') or '') end

-- name_of returns what a line is known by.
local function name_of(line)
  return string.match(line, '^%d+ %S+ %S+ %S+ %S+ %S+ (%S+)$') or string.match(line, '^%S+')
end

-- shares are how many lines of a kind stay where others want room: an owner signs in often, and
-- anybody may ask for tokens who knows an identifier. Neither pushes out what else was done.
local shares = {session = 30, issue = 20}

local function kind_of(line)
  local kind = string.match(line, '^%d+ (%l+)')
  return shares[kind] and kind or 'other'
end

-- trim removes the oldest lines beyond a hundred: those of a kind that has more than its share,
-- else others.
local function trim(all)
  local has = {session = 0, issue = 0, other = 0}
  for _, line in ipairs(all) do
    has[kind_of(line)] = has[kind_of(line)] + 1
  end
  while #all > 100 do
    local at, kind = 1, 'other'
    for name, share in pairs(shares) do
      if has[name] > share then kind = name end
    end
    while kind_of(all[at]) ~= kind do at = at + 1 end
    table.remove(all, at)
    has[kind] = has[kind] - 1
  end
end

-- put_on puts lines that are not there yet at the end of others, and gives numbers to those without one.
local function put_on(all, some, time)
  local has, last = {}, 0
  for _, line in ipairs(all) do
    has[name_of(line)] = true
    last = math.max(last, number_of(line) or 0)
  end
  for line in string.gmatch(some, '[^\n]+') do
    local number = number_of(line)
    if not number then
      number = math.max(time, last + 1)
      line = string.format('%.0f ', number) .. line
    end
    if not has[name_of(line)] then
      all[#all + 1] = line
      has[name_of(line)] = true
      last = math.max(last, number)
    end
  end
  trim(all)
end

-- unrighted returns the error of a server that forbids this user what note writes, as far as it
-- can be asked: then nothing is to be done.
local function unrighted()
  local may = about ~= '' and redis.acl_check_cmd
  if may and record and not may('SET', record, '', 'PX', '1') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'set' command on the history")
  end
  if may and feed and not may('XADD', feed, '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
end

-- waiting_with returns lines that wait in the entry, false for none, with those that are to be
-- noted.
local function waiting_with(waiting)
  local all, time = {}, tonumber(now())
  put_on(all, waiting or '', time)
  put_on(all, lines, time)
  return table.concat(all, '\n')
end

-- waits returns what ~note of an entry becomes if the lines are to wait there, and nil if they are
-- not. waiting is what it is: false for none.
local function waits(waiting)
  if about == '' or record or feed then return nil end
  return waiting_with(waiting)
end

-- marked reports whether the lines are known when they are sent again.
local function marked() return about ~= '' and string.find(lines, '^%S+ %S+ %S+ %S+ %S+ %S+') ~= nil end

-- note writes the lines of what was done into the record and into the feed. how: create; delete,
-- after which the record stays for a day, for the feed of a cluster, or not at all; "" for others.
-- It returns what the server refuses, nil if it does not, and whether ~note is to go, whose lines
-- are in the record now.
local function note(how, waiting)
  if not record then return nil end
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
  if how == 'delete' and feed then
    redis.call('UNLINK', record)
    return nil
  end
  all = read(how == 'create' and day or life, time)
  put_on(all, waiting or '', time)
  put_on(all, lines, time)
  if #all > 0 then refused = keep(record, table.concat(all, '\n'), how == 'delete' and day or life) end
  return refused, waiting and not refused
end

-- note_of notes what was done to an entry, or has the lines wait there if the server refuses to
-- write the record. It returns what the server refuses of that, and whether ~note stays.
local function note_of(entry, how, waiting)
  local refused, goes = note(how, waiting)
  if refused and not feed then
    local reply = redis.pcall('HSET', entry, '~note', waiting_with(waiting))
    if type(reply) ~= 'table' then return nil, true end
  end
  if goes then redis.call('HDEL', entry, '~note') end
  return refused, waiting and not goes
end

-- note_beside notes what was done beside a live entry, whose rev stays. waiting is ~note of the
-- entry, false for none, nil if it was not read. It returns what the server refuses.
local function note_beside(entry, waiting)
  if about == '' then return nil end
  if waiting == nil then
    local head = redis.pcall('HMGET', entry, '~isa', '~note')
    if head.err or not head[1] or head[1] == '' then return nil end
    waiting = head[2]
  end
  local later = waits(waiting)
  if later then
    local reply = redis.pcall('HSET', entry, '~note', later)
    return type(reply) == 'table' and redis.error_reply(reply.err) or nil
  end
  return (note_of(entry, '', waiting))
end
