-- change makes one change of an entry, completely or not at all (I1, I2, I6, I7). Most creates and
-- updates do not need it, because create.lua, creates.lua or update.lua make them. history.lua,
-- tokens.lua, tombstone.lua and guard.lua precede it.
--
-- KEYS  as in guard.lua, then
--   [4]  the record of the entry's tokens
--   and then, in this order and as many of each as ARGV says:
--   SRKs to claim, SRKs elsewhere (those of the same values under other fields), SRKs to release,
--   SRKs of values that are held from now on,
--   index sets to join, index sets to leave, ordered indexes to join, ordered indexes to leave;
--   tertiary records to fill, each followed by the key at which it is first assembled, and by the
--   index sets of its members;
--   records to drop, each followed by the key that it moves to if it is large, and by the index
--   sets of its known members;
--   entries that own SRKs, as an earlier reply said.
-- ARGV  as in guard.lua, then
--   [8]  create | update | disable | mend | delete
--   [9]  the rev that the entry must have; for a create, "again" if it may have run before
--   [10..20]  the numbers of claims, elsewhere, releases, holds, joins, leaves, ordered joins,
--        ordered leaves, fills, drops and owners
--   then lists, each a number of items and these items:
--        facets to set (field, value, …); for a delete, only fields of the store that the tombstone
--        keeps
--        fields to unset
--        for each hold the time at which its SRK expires, in milliseconds
--        members to add to ordered indexes, one for each index
--        members to remove from ordered indexes, one for each index
--        how tokens end: "1" if all do, the time, the hash and the purpose of the token to spend,
--        and the names of lost values that tokens are bound to
--   then for each fill the list of its members, "1" if they are indexed, and the command that adds
--   them (a record that the fill replaces is among the drops)
--   then for each drop the largest number of members with which this script drops an indexed record
--   and leaves its index sets ("0" if the record is not indexed), and the list of its known members
--   then for each owner the number of the SRK, counted from the first claim, the value seen there,
--   the field, and the canonical value
--
-- Replies:
--   {"ok"}              the change was made
--   {"ok", ~drop}       the change was made; the caller now drops the records in ~drop in pieces
--   {"exists", ~rev} | {"retired", ~rev} | {"absent", ~rev} | {"conflict", ~rev} | {"damaged"}
--   {"schema", stored} | {"unstored"}
--   {"token", ~rev}     the token to spend is not valid
--   {"duplicate", i}    another entry has the value of SRK i
--   {"held", i}         another entry has given up the value of SRK i, and holds it
-- and, if the caller must do something before it tries again:
--   {"filling", ~fill}  move into place the records that ~fill names
--   {"occupied", i, SRV, i, SRV, …}  SRK i has the value SRV: pass the entry that it names as an
--                       owner
--   {"members"}         read the members of the sets to drop
--   {"names", stored, field, …}  for a delete or a create over a tombstone: drop more, namely the
--                       records that the stored schema declares and those that the given fields
--                       of ~/schema/TYPE name; ARGV[5] shows whether the caller knows the stored
--                       schema

-- The arguments.

local at = 20
local function take()
  at = at + 1
  return ARGV[at]
end
local function list()
  local n, out = tonumber(take()), {}
  for i = 1, n do out[i] = take() end
  return out
end
local count = {}
for i = 10, 20 do count[i] = tonumber(ARGV[i]) end
local nclaim, nelsewhere, nrelease, nhold, njoin, nleave, nrank, nunrank, nfill, ndrop, nowner =
  unpack(count, 10, 20)
local verb, expected = ARGV[8], ARGV[9]

local set, unset, holds, ranks, unranks, ending = list(), list(), list(), list(), list(), list()
-- mark is the ~tokens of a live entry; see tokens.lua.
local mark = live and head[5]
-- invited is true if the entry is created from an invitation, which is in the record that will hold
-- the entry's tokens.
local invited = verb == 'create' and ending[3] ~= '' and rev ~= own
if invited then mark = '1' .. ended_in(head[5]) end
local function ended_tokens()
  local touched = {}
  for i = 1, #set, 2 do touched[#touched + 1] = set[i] end
  for _, field in ipairs(unset) do touched[#touched + 1] = field end
  return plan_token_endings(KEYS[4], mark, {all = ending[1], now = ending[2], spend = ending[3], purpose = ending[4], gone = ending[5], touched = touched, made = invited})
end

-- Reasons to refuse the change.

-- If the script is sent again, and nobody else has changed the entry in between, it finishes what
-- the earlier run may have left to do in the entry and its tokens (I7). Tokens issued since then
-- stay. What was left in other records, a check finds; only a delete goes through all steps again.
local again = rev == own
if remembered() and not again then return {'ok', head[7]} end
if again and verb ~= 'delete' then
  in_pieces('HDEL', entry, unset)
  if may_have_tokens(mark) then
    local tokens = plan_token_endings(KEYS[4], mark, {all = '', now = ending[2], spend = '', purpose = '', touched = {}})
    if not tokens.err then finish_tokens(entry, KEYS[4], tokens) end
  end
  return {'ok', head[7]}
end
local tombstone = head[1] == '' -- left by a delete; one left by a fence has no ~isa
local damaged = false
for _, field in ipairs(live and {} or redis.call('HKEYS', entry)) do
  if string.sub(field, 1, 1) == '~' then tombstone = true else damaged = damaged or not head[1] end
end
if again then
  -- The entry is dead already.
elseif verb == 'create' then
  if live then return {'exists', past} end
  -- If the create was sent before, ~rev may no longer contain its rev: the entry may have been
  -- made, and then deleted by others (I7).
  if expected == 'again' and #past >= 48 then return {'conflict', past} end
  if damaged then return {'damaged'} end
  if head[8] then return {'retired', past} end
else
  if not live and not (verb == 'mend' and damaged) then return {'absent', past} end
  if rev ~= expected then return {'conflict', past} end
end
local refused = not again and refused_by_schema()
if refused then return refused end
-- If the entry was copied here from a cluster, the records prepared for it must be moved into place
-- first, or they would later overwrite this change.
if not again and head[4] and nfill + ndrop > 0 then return {'filling', head[4]} end

local tokens = ended_tokens()
if tokens.err then return redis.error_reply(tokens.err) end
if tokens.refused then return {'token', past} end
local k = 4
local nsrk = nclaim + nelsewhere
local function owner_of(srv) return (string.match(srv, '^([^ ]*)')) end

-- Find the SRKs that name other entries. If an earlier reply reported them, the caller has declared
-- those entries as owners.
local srv = {}
for i = 1, nsrk do
  local v = redis.pcall('GET', KEYS[k + i])
  if failed(v) then return redis.error_reply(v.err) end
  if v and owner_of(v) ~= prk then srv[i] = v end
end
local giving_up = {} -- SRKs to release and to hold that name this entry
for i = 1, nrelease + nhold do
  local v = redis.pcall('GET', KEYS[k + nsrk + i])
  if failed(v) then return redis.error_reply(v.err) end
  giving_up[i] = v and owner_of(v) == prk
end
k = k + nsrk + nrelease + nhold
local join, leave = k, k + njoin
for i = 1, njoin + nleave do
  local n = redis.pcall('SCARD', KEYS[k + i])
  if failed(n) then return redis.error_reply(n.err) end
end
k = k + njoin + nleave
local rank, unrank = k, k + nrank
for i = 1, nrank + nunrank do
  local n = redis.pcall('ZCARD', KEYS[k + i])
  if failed(n) then return redis.error_reply(n.err) end
end
k = k + nrank + nunrank

-- Records to write with the entry, and records to drop.
local fills, drops, replaced = {}, {}, {}
for i = 1, nfill do
  local members = list()
  local indexed, command = take() == '1', take()
  replaced[KEYS[k + 1]] = true
  fills[i] = {key = KEYS[k + 1], stage = KEYS[k + 2], members = members, index = k + 2, indexed = indexed, command = command}
  local last = k + 2 + (indexed and #members or 0)
  for j = k + 3, last do
    local n = redis.pcall('SCARD', KEYS[j])
    if failed(n) then return redis.error_reply(n.err) end
  end
  k = last
end
-- A large indexed set is moved aside at once. The reply tells the caller to drop it in pieces
-- later. A large record of another kind that is replaced is moved aside and unlinked, since RENAME
-- over it would free all of it at once.
local counting = {set = 'SCARD', list = 'LLEN', zset = 'ZCARD', hash = 'HLEN'}
local function size_of(key)
  local count = counting[redis.call('TYPE', key).ok]
  local n = count and redis.pcall(count, key)
  return type(n) == 'number' and n or 0
end
local dropping = head[7]
for i = 1, ndrop do
  local limit, known, index = tonumber(take()), list(), {}
  local key, aside, indexed = KEYS[k + 1], KEYS[k + 2], limit > 0
  for j, member in ipairs(known) do index[member] = KEYS[k + 2 + j] end
  local d = {key = key, first = k + 3, last = k + 2 + #known}
  k = d.last
  if indexed then
    local n = redis.pcall('SCARD', key)
    if failed(n) then -- a record of another Redis type is dropped as well
      if not string.find(n.err, 'WRONGTYPE', 1, true) then return redis.error_reply(n.err) end
    elseif n > limit then
      d.aside, d.last = aside, d.first - 1
      local name = own .. ':' .. string.sub(key, #entry + 2)
      if not string.find(dropping or '', name, 1, true) then dropping = (dropping and dropping .. ' ' or '') .. name end
    else
      local members = redis.pcall('SMEMBERS', key)
      if failed(members) then return redis.error_reply(members.err) end
      for _, member in ipairs(members) do
        if not index[member] then return {'members'} end
      end
    end
  elseif replaced[key] and size_of(key) > 1000 then
    d.aside, d.free = aside, true
  end
  drops[i] = d
  for j = d.first, d.last do
    local n = redis.pcall('SCARD', KEYS[j])
    if failed(n) then return redis.error_reply(n.err) end
  end
end

if (verb == 'delete' or tombstone and verb == 'create') and stored then
  local text, fields, known = redis.call('HGET', schema, 'schema') or '', redis.call('HKEYS', schema), {}
  local unknown = {'names', text}
  for _, d in ipairs(drops) do known[d.key] = true end
  for _, field in ipairs(fields) do
    local name = string.match(field, '^tertiary:([^~/].*)$')
    if name and not known[entry .. '/' .. name] then unknown[#unknown + 1] = field end
  end
  if #unknown > 2 or verb == 'delete' and text ~= ARGV[5] then return unknown end
end

-- An SRK that names another entry counts only if that entry has the value, or gave it up and holds
-- it (I2).
local stale = {}
-- ms_until returns how many milliseconds are left until a time in milliseconds.
local function ms_until(at)
  local time = redis.call('TIME')
  return (tonumber(at) or 0) - time[1] * 1000 - math.floor(time[2] / 1000)
end
for i = 1, nowner do
  local n, seen, field, value = tonumber(take()), take(), take(), take()
  if srv[n] == seen then
    local q = redis.pcall('HMGET', KEYS[k + i], '~isa', '~skv:' .. field, field, '~also:' .. field .. ':' .. value, '~held:' .. field .. ':' .. value)
    if not failed(q) then
      if q[1] == ARGV[7] and ((q[2] or q[3]) == value or q[4]) then return {'duplicate', n} end
      if q[5] and ms_until(q[5]) > 0 then return {'held', n} end
    end
    srv[n] = nil
    if n > nclaim then stale[#stale + 1] = n end
  end
end
local occupied = {'occupied'}
for i = 1, nsrk do
  if srv[i] then
    occupied[#occupied + 1] = i
    occupied[#occupied + 1] = srv[i]
  end
end
if #occupied > 1 then return occupied end

-- The writes.

-- Everything from here on writes. A server that refuses all writes refuses the first of them. If it
-- refuses a later one, the records written so far are garbage that no reader sees (I4), or they are
-- written again when the script is sent again. To that end, SRKs and index members that an entry
-- gains are written before its rev, and those that it loses are removed after its rev. Commands on
-- the entry for which the Redis user may lack permission are tried before anything changes, if they
-- can be tried without changing the entry.
local function try(command, ...)
  local reply = redis.pcall(command, entry, ...)
  if failed(reply) then return redis.error_reply(reply.err) end
end
if not again and (verb == 'delete' or verb == 'disable' or verb == 'mend' or tombstone or #unset > 0 or head[3] or head[6]) then
  if verb == 'delete' or verb == 'disable' then
    -- PERSIST changes nothing, since a live entry has no time to live. It is the first write so
    -- that a full server accepts the HSET below, which it refuses only as a first write.
    refused = try('PERSIST')
  elseif live then
    refused = try('HSET', '~isa', head[1])
  else
    refused = try('HSET', '~rev', past)
  end
  refused = refused or verb == 'mend' and try('PERSIST') or try('HDEL', '~none')
  if refused then return refused end
end
refused = not again and (permission_error() or store_schema())
if refused then return refused end
local wrote = unstored or again
local function write(command, ...)
  if wrote then
    redis.call(command, ...)
    return nil
  end
  local reply = redis.pcall(command, ...)
  if failed(reply) then return redis.error_reply(reply.err) end
  wrote = true
end
local remember = own .. string.sub(past, 1, 36)
local taken = {} -- positions in ordered indexes that the entry takes, and so must not leave below
local function take_places()
  -- This HSET changes nothing. A full server refuses it, but would not refuse an UNLINK.
  local refusal = live and write('HSET', entry, '~isa', head[1])
  for i = 1, nclaim do refusal = refusal or write('SET', KEYS[4 + i], prk) end
  for i = 1, njoin do refusal = refusal or write('SADD', KEYS[join + i], prk) end
  for i = 1, nrank do
    refusal = refusal or write('ZADD', KEYS[rank + i], '0', ranks[i])
    taken[KEYS[rank + i] .. ranks[i]] = true
  end
  return refusal
end
local filled, joined = {}, {} -- keys that drop leaves alone
local function drop(d)
  if d.free then
    redis.call('UNLINK', d.aside)
  elseif d.aside and not filled[d.key] then
    if redis.call('EXISTS', d.key) == 1 then redis.call('RENAME', d.key, d.aside) end
  elseif not filled[d.key] then
    redis.call('UNLINK', d.key)
  end
  for j = d.first, d.last do
    if not joined[KEYS[j]] then redis.call('SREM', KEYS[j], prk) end
  end
end
-- fill puts a record together under another key and then renames it over the record that it
-- replaces, which stays if anything is refused.
local function fill(f)
  local refusal = write('HSETNX', schema, name_field(f.key), '1')
  for j = 1, f.indexed and #f.members or 0 do
    refusal = refusal or write('SADD', KEYS[f.index + j], prk)
    joined[KEYS[f.index + j]] = true
  end
  refusal = refusal or write('UNLINK', f.stage) -- left by an earlier run
  for i = 1, #f.members, 2000 do
    refusal = refusal or write(f.command, f.stage, unpack(f.members, i, math.min(i + 1999, #f.members)))
  end
  filled[f.key] = true
  local aside
  for _, d in ipairs(drops) do
    if d.key == f.key and d.aside and redis.call('EXISTS', f.key) == 1 then aside = d.aside end
  end
  if not aside or refusal then return refusal or write('RENAME', f.stage, f.key) end
  refusal = write('RENAME', f.key, aside)
  if refusal then return refusal end
  local reply = redis.pcall('RENAME', f.stage, f.key)
  if failed(reply) then
    redis.call('RENAME', aside, f.key)
    error({err = reply.err})
  end
end

-- note_done must be called right after the command that makes the change. If a later command is
-- refused, the next run finds the change made and notes nothing. unnoted is the error if the
-- history line was refused. remove_note is true if ~note must be removed.
local unnoted, remove_note
local function note_done()
  if not again then unnoted, remove_note = note(verb, head[6]) end
end

if verb == 'delete' then
  -- The entry is marked as dead before its records are removed, so that a refused command cannot
  -- leave a live entry without its tags. Whatever remains beside the tombstone is garbage, which no
  -- create inherits. The tombstone is written before the facets are removed, because a key that no
  -- longer exists cannot be written in a slot that is being migrated.
  local has_ended = tokens.ended and #tokens.ended > 0
  if has_ended then
    set[#set + 1] = '~tokens'
    set[#set + 1] = '1 ' .. table.concat(tokens.ended, ' ')
  end
  refused = not again and write('HSET', entry, '~isa', '', '~rev', remember, unpack(set))
  if refused then return refused end
  note_done()
  if dropping ~= head[7] then redis.call('HSET', entry, '~drop', dropping) end
  strip(entry, false, again or has_ended)
  for _, d in ipairs(drops) do drop(d) end
  redis.call('UNLINK', KEYS[4])
  redis.call('HDEL', entry, '~tokens')
else
  refused = take_places()
  if live and dropping ~= head[7] then refused = refused or write('HSET', entry, '~drop', dropping) end
  if refused then return refused end
  for _, f in ipairs(fills) do refused = refused or fill(f) end
  if refused then return refused end
  for _, d in ipairs(drops) do drop(d) end
  if tombstone then -- the entry must not keep its facets or its time to live
    if verb == 'create' and head[1] then strip(entry) end
    if verb == 'create' and head[5] then redis.call('HDEL', entry, '~tokens') end
    redis.call('PERSIST', entry)
  end
  -- The new epoch prevents callers that read the earlier entry from starting sessions of this one.
  if tombstone and verb == 'create' then
    set[#set + 1] = '~epoch'
    set[#set + 1] = own
  end
  if tokens.mark then
    set[#set + 1] = '~tokens'
    set[#set + 1] = tokens.mark
  end
  if not live and dropping ~= head[7] then
    set[#set + 1] = '~drop'
    set[#set + 1] = dropping
  end
  set[#set + 1] = '~rev'
  set[#set + 1] = remember
  for i = 1, #set, 2000 do
    refused = write('HSET', entry, unpack(set, i, math.min(i + 1999, #set)))
    if refused then return refused end
  end
  note_done()
  if head[3] then unset[#unset + 1] = '~fence' end
  in_pieces('HDEL', entry, unset)
  if tombstone then redis.call('HDEL', entry, '~dying', '~since') end
end
if may_have_tokens(mark) and verb ~= 'delete' then finish_tokens(entry, KEYS[4], tokens) end
for _, n in ipairs(stale) do redis.call('UNLINK', KEYS[4 + n]) end
for i = 1, nrelease do
  if giving_up[i] then redis.call('UNLINK', KEYS[4 + nsrk + i]) end
end
for i = 1, nhold do
  if giving_up[nrelease + i] then
    redis.call('PEXPIRE', KEYS[4 + nsrk + nrelease + i], string.format('%.0f', math.max(1, ms_until(holds[i]))))
  end
end
for i = 1, nleave do redis.call('SREM', KEYS[leave + i], prk) end
for i = 1, nunrank do
  if not taken[KEYS[unrank + i] .. unranks[i]] then redis.call('ZREM', KEYS[unrank + i], unranks[i]) end
end
-- This comes last, because a create drops the remains of a delete only if it finds the tombstone.
if verb == 'delete' then end_tombstone(entry, 600) end
if unnoted then error({err = unnoted.err}) end
if remove_note then redis.call('HDEL', entry, '~note') end
return {'ok', dropping}
