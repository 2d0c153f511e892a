-- creates makes many entries if none of the records that they need exists yet (I1, I2, I7).
--
-- Otherwise it writes nothing, and each entry goes through change.lua. Entries of one shape have
-- the same fields and the same numbers of records, so that names and numbers are sent only once
-- for all of them.
--
-- KEYS[1]  ~/schema/TYPE, a hash
--   then the keys that must be absent; for each entry these are
--     the entry itself,
--     the SRKs of its secondary values,
--     the SRKs of these values under the other secondary fields, and the tertiary records that the
--     schema declares but that the entry is created without,
--     the tertiary records that are created with it;
--   then the index sets to join, the ordered indexes to join, and last the feed, if the entries
--   have history lines.
-- ARGV[1..3]  the fingerprint of the schema, the type, and the length of the namespace in a key
-- ARGV[4..7]  the numbers of shapes, of keys that must be absent, of index sets, and of ordered
--   indexes
-- ARGV[8]  the time in milliseconds, "" for the server's
-- ARGV[9]  the maximum number of entries in the feed, "0" if the entries have no history lines
-- ARGV[10..]  for each shape:
--     five numbers: how many entries it has, and how many of these each entry has: SRKs to write,
--     other keys that must be absent, tertiary records to create, and facets;
--     the fields of the facets;
--     and for each entry the values of these facets, the rev, and for each tertiary record the
--     command that adds its members, and the members;
--   then for each index set the PRKs to add, and for each ordered index the positions, each after
--   its score.
-- Members, PRKs and positions are lists: a number of items and these items. The history line of an
-- entry is its last facet, ~note. The script adds the number that the line still lacks; see
-- internal/store/history/history.lua.
-- Reply: {"ok"} | {"other"} if nothing was written

-- Locals are faster than globals.
local call, pcall, unpack, min, KEYS, ARGV = redis.call, redis.pcall, unpack, math.min, KEYS, ARGV
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local fingerprint = pcall('HGET', KEYS[1], 'fingerprint')
if fingerprint ~= ARGV[1] then return {'other'} end
local nshape, nabsent, njoin, nrank = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
for i = 2, nabsent + 1, 2000 do
  if call('EXISTS', unpack(KEYS, i, min(i + 1999, nabsent + 1))) ~= 0 then return {'other'} end
end
local join, rank = nabsent + 1, nabsent + 1 + njoin
for i = 1, njoin do
  if failed(pcall('SCARD', KEYS[join + i])) then return {'other'} end
end
for i = 1, nrank do
  if failed(pcall('ZCARD', KEYS[rank + i])) then return {'other'} end
end

-- SRKs and index members are written before the entries that they name: until then they are at
-- worst garbage, which no reader sees (I4). The script therefore goes through the arguments twice,
-- first for the records that are written before the entries.
local at, k, srks, nsrk, relative, noted, feed_lines = 9, 1, {}, 0, ARGV[3] + 1, ARGV[9] ~= '0', {}
local function skip() at = at + 1 + ARGV[at + 1] end
local shapes, named = {}, {}
for s = 1, nshape do
  local shape = {}
  for i = 1, 5 do shape[i] = tonumber(ARGV[at + i]) end
  local nentry, nclaim, nelsewhere, nfill, nfacet = unpack(shape)
  shape.at, shape.k = at + 5, k
  shapes[s], at = shape, at + 5 + nfacet
  for e = 1, nentry do
    local entry = KEYS[k + 1]
    local prk = string.sub(entry, relative)
    for i = k + 2, k + 1 + nclaim do
      srks[nsrk + 1], srks[nsrk + 2], nsrk = KEYS[i], prk, nsrk + 2
    end
    if noted then feed_lines[#feed_lines + 1] = prk .. ' - ' .. ARGV[at + nfacet] end
    k, at = k + 1 + nclaim + nelsewhere, at + nfacet + 1
    for i = 1, nfill do
      k, at = k + 1, at + 1
      named['tertiary:' .. string.sub(KEYS[k], #entry + 2)] = true
      skip()
    end
  end
end

local wrote, refused = false, nil
local function write(command, ...)
  local reply = pcall(command, ...)
  if type(reply) ~= 'table' or not reply.err then
    wrote = true
    return
  end
  if wrote then error({err = reply.err}) end -- some of it was written
  return redis.error_reply(reply.err)
end
-- list runs a command with the next list of arguments.
local function list(command, key)
  local first, last = at + 2, at + 1 + ARGV[at + 1]
  at = last
  for i = first, last, 2000 do
    refused = refused or write(command, key, unpack(ARGV, i, min(i + 1999, last)))
  end
end
local number, now
if noted then
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', KEYS[#KEYS], '*', 'e', '') then
    return redis.error_reply("NOPERM this user has no permissions to run the 'xadd' command on the feed")
  end
  local clock = call('TIME')
  now = clock[1] .. string.sub('00' .. math.floor(clock[2] / 1000), -3)
  number = ARGV[8] ~= '' and ARGV[8] .. '000 ' or clock[1] .. string.sub('00000' .. clock[2], -6) .. ' '
end
for i = 1, nsrk, 2000 do refused = refused or write('MSET', unpack(srks, i, min(i + 1999, nsrk))) end
for i = 1, njoin do list('SADD', KEYS[join + i]) end
for i = 1, nrank do list('ZADD', KEYS[rank + i]) end
for field in pairs(named) do refused = refused or write('HSETNX', KEYS[1], field, '1') end
if refused then return refused end

for _, shape in ipairs(shapes) do
  local nentry, nclaim, nelsewhere, nfill, nfacet = unpack(shape)
  at, k = shape.at, shape.k
  local facets, last = {'~isa', ARGV[2], '~prk', '', '~rev', ''}, 6 + 2 * nfacet
  for i = 1, nfacet do facets[5 + 2 * i] = ARGV[at + i] end
  at = at + nfacet
  for e = 1, nentry do
    local entry = KEYS[k + 1]
    for i = 1, nfacet do facets[6 + 2 * i] = ARGV[at + i] end
    if noted then facets[last] = number .. facets[last] end
    at = at + nfacet + 1
    facets[4], facets[6] = string.sub(entry, relative), ARGV[at]
    k = k + 1 + nclaim + nelsewhere
    for i = 1, nfill do
      k, at = k + 1, at + 1
      list(ARGV[at], KEYS[k])
    end
    for i = 1, last, 2000 do refused = refused or write('HSET', entry, unpack(facets, i, min(i + 1999, last))) end
    if refused then return refused end
  end
end
if noted then
  local id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[9], now .. '-*', 'e', table.concat(feed_lines, '\n'))
  if failed(id) and string.find(id.err, 'equal or smaller', 1, true) then
    -- The server's clock was ahead: see add in history.lua.
    for i, line in ipairs(feed_lines) do feed_lines[i] = string.gsub(line, ' %- ', ' ' .. number, 1) end
    id = pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[9], '*', 'e', table.concat(feed_lines, '\n'))
  end
  if failed(id) then error({err = id.err}) end
end
return {'ok'}
