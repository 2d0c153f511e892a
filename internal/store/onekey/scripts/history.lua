-- history precedes every script that writes lines to the history of an entry.
--
-- The history is a text beside the entry, in its slot. It consists of lines
--   NUMBER KIND WHO ORIGIN FIELDS PURPOSE MARK
-- in the order in which they were written: at most a hundred, from the last 90 days. NUMBER is the
-- time in microseconds, made greater than the numbers of the lines that were there already. Neither
-- it nor the rest of a line ever changes. MARK names a line that was sent by several commands, or
-- may have been. Other lines are named by their number.
--
-- Lines may also wait in ~note of the entry. The line of a create does, which saves a record. On a
-- cluster any line may, in a slot that is being migrated, where no node serves two keys while one
-- of them is absent. A script that writes lines has the entry among its keys. It moves waiting
-- lines into the record before it adds its own. A line that is in both places counts once. On one
-- server a line is added to the feed at the same time. The feed is a stream of texts of lines "PRK
-- LINE", with a hyphen in place of the number.
--
-- A script writes lines after it has done what they say. So if the server refuses one of its
-- writes, no line describes what was not done. Lines that wait in the entry are written by the
-- command that writes its rev.
--
-- The last argument is "" if there is nothing to write. Otherwise it says which keys come last:
-- b(oth), r(ecord), f(eed) or n(one). The time in milliseconds follows, or nothing for the server's
-- time. The arguments before it are the maximum number of entries in the feed, the PRK, and the
-- lines, which have numbers only for feed.lua.

local about, lines, prk, most, feed, record = table.remove(ARGV), nil, nil, nil, nil, nil
if about ~= '' then
  lines, prk, most = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local last = string.sub(about, 1, 1)
  if last == 'b' or last == 'f' then feed = table.remove(KEYS) end
  if last == 'b' or last == 'r' then record = table.remove(KEYS) end
end
local life, day = '7776000000', '86400000' -- milliseconds

-- now returns the time in microseconds, as digits: the given time, else the time at which the
-- feed's entry id was added, else the server's time.
local function now(id)
  if #about > 1 then return string.sub(about, 2) .. '000' end
  if id then
    local at = string.find(id, '-', 1, true)
    return string.sub(id, 1, at - 1) .. string.sub('00' .. string.sub(id, at + 1), -3)
  end
  local clock = redis.call('TIME')
  return clock[1] .. string.sub('00000' .. clock[2], -6)
end

-- add appends a text to the feed, and returns its ID.
local function add(text)
  local id = redis.pcall('XADD', feed, 'MAXLEN', '~', most, '*', 'e', text)
  if type(id) == 'table' and id.err then return nil, redis.error_reply(id.err) end
  return id
end

-- feed_text returns the entry's new lines as the feed stores them.
local function feed_text()
  if not string.find(lines, '\n', 1, true) then return prk .. ' - ' .. lines end
  local text = {}
  for line in string.gmatch(lines, '[^\n]+') do text[#text + 1] = prk .. ' - ' .. line end
  return table.concat(text, '\n')
end

-- save writes a text with a time to live. It returns the error if the server refuses.
local function save(in_record, text, milliseconds)
  local reply = redis.pcall('SET', in_record, text, 'PX', milliseconds)
  if reply.err then return redis.error_reply(reply.err) end
end

-- read_lines returns the lines of the record from the last so many milliseconds. Lines of an
-- earlier entry disappear a day after the next one was created.
local function read_lines(milliseconds, time)
  local past, all = redis.pcall('GET', record), {}
  if type(past) ~= 'string' then past = '' end -- a record of another Redis type is replaced
  for line in string.gmatch(past, '[^\n]+') do
    local number, kind = string.match(line, '^(%d+) (%l+)')
    number = tonumber(number or '0')
    if kind == 'create' and number < time - day * 1000 then all = {} end
    if number > time - milliseconds * 1000 then all[#all + 1] = line end
  end
  return all
end

-- number_of returns the number of a line, or nil if it has none yet.
local function number_of(line) return tonumber(string.match(line, '^(%d+) ') or '') end

-- name_of returns the name of a line.
local function name_of(line)
  return string.match(line, '^%d+ %S+ %S+ %S+ %S+ %S+ (%S+)$') or string.match(line, '^%S+')
end

-- kind_limits says how many lines of a kind stay when others need room. An owner signs in often,
-- and anybody who knows an identifier may ask for tokens. Neither pushes out the other lines.
local kind_limits = {session = 30, issue = 20}

local function kind_of(line)
  local kind = string.match(line, '^%d+ (%l+)')
  return kind_limits[kind] and kind or 'other'
end

-- trim removes the oldest lines beyond a hundred. It prefers a kind that has more than its share.
local function trim(all)
  local has = {session = 0, issue = 0, other = 0}
  for _, line in ipairs(all) do
    has[kind_of(line)] = has[kind_of(line)] + 1
  end
  while #all > 100 do
    local at, kind = 1, 'other'
    for name, limit in pairs(kind_limits) do
      if has[name] > limit then kind = name end
    end
    while kind_of(all[at]) ~= kind do at = at + 1 end
    table.remove(all, at)
    has[kind] = has[kind] - 1
  end
end

-- append_lines appends the lines in some that are not in all yet, and gives numbers to those
-- without one.
local function append_lines(all, some, time)
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

-- unrighted returns the error of a server that forbids this user the commands that note needs, as
-- far as the server can be asked. The script must then do nothing.
local function unrighted()
  local may = about ~= '' and redis.acl_check_cmd
  if may and record and not may('SET', record, '', 'PX', '1') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'set' command on the history")
  end
  if may and feed and not may('XADD', feed, '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
end

-- waiting_with returns the lines that wait in the entry, false for none, together with the new
-- lines.
local function waiting_with(waiting)
  local all, time = {}, tonumber(now())
  append_lines(all, waiting or '', time)
  append_lines(all, lines, time)
  return table.concat(all, '\n')
end

-- waits returns the new value of ~note if the new lines are to wait in the entry, and nil if they
-- are not. waiting is the old value, false for none.
local function waits(waiting)
  if about == '' or record or feed then return nil end
  return waiting_with(waiting)
end

-- marked reports whether the lines can be recognized when they are sent again.
local function marked() return about ~= '' and string.find(lines, '^%S+ %S+ %S+ %S+ %S+ %S+') ~= nil end

-- note writes the lines to the record and to the feed. how is "create", "delete", or "" for other
-- changes. After a delete, a cluster's record stays for a day, for the feed; otherwise it is
-- deleted. note returns the error if the server refuses, else nil, and whether ~note must be
-- removed because its lines are in the record now.
local function note(how, waiting)
  if not record then return nil end
  local id, refused
  if feed and lines ~= '' then
    id, refused = add(feed_text())
    if refused then return refused end
  end
  local time, all = tonumber(now(id)), {}
  if how == 'create' and id then
    append_lines(all, lines, time)
    return save(record, table.concat(all, '\n'), life)
  end
  if how == 'delete' and feed then
    redis.call('UNLINK', record)
    return nil
  end
  all = read_lines(how == 'create' and day or life, time)
  append_lines(all, waiting or '', time)
  append_lines(all, lines, time)
  if #all > 0 then refused = save(record, table.concat(all, '\n'), how == 'delete' and day or life) end
  return refused, waiting and not refused
end

-- note_of writes the lines of a change to an entry, or makes them wait there if the server refuses
-- to write the record. It returns the error if the server refuses that as well, and whether ~note
-- stays.
local function note_of(entry, how, waiting)
  local refused, goes = note(how, waiting)
  if refused and not feed then
    local reply = redis.pcall('HSET', entry, '~note', waiting_with(waiting))
    if type(reply) ~= 'table' then return nil, true end
  end
  if goes then redis.call('HDEL', entry, '~note') end
  return refused, waiting and not goes
end

-- note_beside writes the lines of a change beside a live entry, whose rev stays. waiting is ~note
-- of the entry, false for none, nil if it was not read. It returns the error if the server refuses.
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
