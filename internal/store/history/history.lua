-- This source precedes every script that writes lines to the history of an entry or to a feed.
--
-- The history is a text beside the entry, in its slot. It consists of lines
--   NUMBER KIND WHO ORIGIN FIELDS PURPOSE MARK
-- in the order in which they were written: at most a hundred, from the last 90 days. NUMBER is the
-- time in microseconds, increased if necessary so that it exceeds the numbers of earlier lines. A
-- line never changes. MARK is the name of a line that several commands may send. The name of any
-- other line is its number. A MARK that ends with a hyphen keeps the line out of the feed of
-- changes.
--
-- Lines may also wait in the field ~note of the entry. The line of a create waits there if it has
-- no origin, which saves a record. On a cluster, any line may wait there while the slot is being
-- migrated, because no node serves two keys of such a slot if one of them is absent. A script that
-- writes lines to a history has the entry among its keys. It moves waiting lines into the record
-- before it adds its own. A line that is in both places counts once. On one server, the script that
-- writes a line also adds it to the feed. The feed is a stream. Each of its entries holds lines
-- "PRK LINE", with a hyphen in place of the number. If the server's clock was ahead when the last
-- entry was added, the lines of later ones have numbers.
--
-- A script writes lines after it has made the change that they describe. So if the server refuses
-- one of its writes, no line describes a change that was not made. Lines of a change that wait in
-- the entry from the start are written by the command that writes the entry's rev.
--
-- The last argument, about, is "" if there is nothing to write. Otherwise it begins with a letter
-- that says which keys come last: b(oth), r(ecord), f(eed) or n(one). After the letter comes the
-- time in milliseconds, or nothing for the server's time. The arguments before it are the maximum
-- number of entries in the feed, the PRK, and the lines, which have numbers only for feed.lua.

local about, lines, prk, max_entries, feed, record = table.remove(ARGV), nil, nil, nil, nil, nil
if about ~= '' then
  lines, prk, max_entries = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local last = string.sub(about, 1, 1)
  if last == 'b' or last == 'f' then feed = table.remove(KEYS) end
  if last == 'b' or last == 'r' then record = table.remove(KEYS) end
end
local life, day = '7776000000', '86400000' -- milliseconds

-- numbered is the time in microseconds, as digits, if add has given the lines numbers of their own.
local numbered

-- now returns the time in microseconds, as digits. This is numbered or, if the lines have no
-- numbers, the time in the last argument or, without it, the time at which the stream entry id was
-- added or, without an id, the server's time.
local function now(id)
  if numbered then return numbered end
  if #about > 1 then return string.sub(about, 2) .. '000' end
  if id then
    local at = string.find(id, '-', 1, true)
    return string.sub(id, 1, at - 1) .. string.sub('00' .. string.sub(id, at + 1), -3)
  end
  local clock = redis.call('TIME')
  return clock[1] .. string.sub('00000' .. clock[2], -6)
end

-- add appends a text to the feed. It returns the ID of the new stream entry, or nil and the error.
-- The ID says when the lines were added, unless the feed has a later one already, because the
-- server's clock was ahead. Then the lines get the time as their numbers.
local function add(text)
  local clock = redis.call('TIME')
  local at = clock[1] .. string.sub('00' .. math.floor(clock[2] / 1000), -3)
  local id = redis.pcall('XADD', feed, 'MAXLEN', '~', max_entries, at .. '-*', 'e', text)
  if type(id) == 'table' and id.err and string.find(id.err, 'equal or smaller', 1, true) then
    numbered = now()
    local number = tonumber(numbered) - 1
    text = string.gsub(text, '[^\n]+', function(line)
      number = number + 1
      return (string.gsub(line, '^(%S*) %- ', string.format('%%1 %.0f ', number)))
    end)
    id = redis.pcall('XADD', feed, 'MAXLEN', '~', max_entries, '*', 'e', text)
  end
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

-- read_lines returns the lines of the record that are not older than the given number of
-- milliseconds. time is the time in microseconds. Lines of an earlier entry with the same key
-- disappear a day after that entry was deleted or the next one was created.
local function read_lines(milliseconds, time)
  local past, all = redis.pcall('GET', record), {}
  if type(past) ~= 'string' then past = '' end -- a record of another Redis type is replaced
  for line in string.gmatch(past, '[^\n]+') do
    local number, kind = string.match(line, '^(%d+) (%l+)')
    number = tonumber(number or '0')
    local old = number < time - day * 1000
    if old and (kind == 'create' or kind == 'delete') then all = {} end
    if number > time - milliseconds * 1000 and not (old and kind == 'delete') then all[#all + 1] = line end
  end
  return all
end

-- number_of returns the number of a line, or nil if it has none yet.
local function number_of(line) return tonumber(string.match(line, '^(%d+) ') or '') end

-- name_of returns the name of a line: its mark or, if it has none, its number.
local function name_of(line)
  return string.match(line, '^%d+ %S+ %S+ %S+ %S+ %S+ (%S+)$') or string.match(line, '^%S+')
end

-- kind_limits says how many lines of a kind stay when there are too many lines. An owner signs in
-- often, and anybody who knows an identifier can ask for tokens. Neither may push out other lines.
local kind_limits = {session = 30, issue = 20}

local function kind_of(line)
  local kind = string.match(line, '^%d+ (%l+)')
  return kind_limits[kind] and kind or 'other'
end

-- trim removes the oldest lines until a hundred are left. It first removes lines of a kind that
-- exceeds its limit.
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

-- append_lines appends the lines of a text to a list, except those that the list already has. It
-- gives a number to each line without one.
local function append_lines(all, text, time)
  local has, last = {}, 0
  for _, line in ipairs(all) do
    has[name_of(line)] = true
    last = math.max(last, number_of(line) or 0)
  end
  for line in string.gmatch(text, '[^\n]+') do
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

-- permission_error returns an error if this user has no right to run the commands that note needs.
-- The script must then change nothing. On a server that does not let scripts ask, it returns nil.
local function permission_error()
  local may = about ~= '' and redis.acl_check_cmd
  if may and record and not may('SET', record, '', 'PX', '1') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'set' command on the history")
  end
  if may and feed and not may('XADD', feed, '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
end

-- waiting_with returns the lines that wait in the entry together with the new lines. waiting is
-- false if no lines wait.
local function waiting_with(waiting)
  local all, time = {}, tonumber(now())
  append_lines(all, waiting or '', time)
  append_lines(all, lines, time)
  return table.concat(all, '\n')
end

-- new_note returns the new value of ~note if the new lines have to wait in the entry, and nil
-- otherwise. waiting is the old value, or false if there is none.
local function new_note(waiting)
  if about == '' or record or feed then return nil end
  return waiting_with(waiting)
end

-- marked reports whether the lines can be recognized when they are sent again.
local function marked() return about ~= '' and string.find(lines, '^%S+ %S+ %S+ %S+ %S+ %S+') ~= nil end

-- note writes the lines to the record and to the feed. how is "create", "delete", or "" for other
-- changes. On one server, a delete writes only to the feed, because the script drops the record. On
-- a cluster the record stays for a day, because the feed is written from it. note returns the
-- server's error, or nil, and whether ~note must be removed, since its lines are now in the record.
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
  if how == 'delete' and feed then return nil end
  all = read_lines(how == 'create' and day or life, time)
  append_lines(all, waiting or '', time)
  append_lines(all, lines, time)
  if #all > 0 then refused = save(record, table.concat(all, '\n'), how == 'delete' and day or life) end
  return refused, waiting and not refused
end

-- note_of writes the lines of a change to the record. If the server refuses that on a cluster, the
-- lines wait in the entry instead. note_of returns the error if the lines were not written, and
-- whether ~note stays.
local function note_of(entry, how, waiting)
  local refused, remove_note = note(how, waiting)
  if refused and not feed then
    local reply = redis.pcall('HSET', entry, '~note', waiting_with(waiting))
    if type(reply) ~= 'table' then return nil, true end
  end
  if remove_note then redis.call('HDEL', entry, '~note') end
  return refused, waiting and not remove_note
end

-- note_beside writes lines about a live entry without changing the entry's rev. waiting is the
-- entry's ~note, false if there is none, or nil if it was not read. note_beside returns an error if
-- the server refuses.
local function note_beside(entry, waiting)
  if about == '' then return nil end
  if waiting == nil then
    local head = redis.pcall('HMGET', entry, '~isa', '~note')
    if head.err or not head[1] or head[1] == '' then return nil end
    waiting = head[2]
  end
  local later = new_note(waiting)
  if later then
    local reply = redis.pcall('HSET', entry, '~note', later)
    return type(reply) == 'table' and redis.error_reply(reply.err) or nil
  end
  return (note_of(entry, '', waiting))
end
