-- commit changes an entry. It is step 4 of the protocol in apply.go, and no other script changes
-- the facets of a live entry (I6, I7). It needs the functions of tokens.lua, history.lua and
-- tombstone.lua.
--
-- KEYS[1]  the entry
-- KEYS[2]  the record of its tokens, in the same slot; missing if it cannot exist, or if its
--          contents are in ARGV[14]
-- ARGV[1]  the rev of this attempt      ARGV[2]  create | update | disable | mend | delete
-- ARGV[3], ARGV[4]  the newest rev of ~rev, and ~fence, as they were read; "" for none
-- ARGV[5]  time to live of a tombstone, in seconds
-- ARGV[6]  the mark of the removal of the entry's records, which ~dying gets; "" if a delete leaves
--          no records to remove
-- ARGV[7]  when the check of the schema expires, in milliseconds of the server's clock
-- ARGV[8…12]  "1" to end all tokens; the time; hash and purpose of the token to spend; the names of
--            lost values that tokens are bound to
-- ARGV[13], ARGV[14]  if the record of tokens was read separately: ~tokens as it was before that,
--            and the record's lines "NAME MEMBER"; else "" and ""
-- ARGV[15]  the number of fields to unset, then those, then field, value, …; if tertiary records
--            change, ~fill is the last field; a delete sets only fields that the tombstone keeps
-- Reply: {"ok"} | {"ok", ~note of a new entry, if its key had no tombstone}
--      | {"exists" | "retired" | "absent" | "conflict" | "dying" | "filling" | "late", ~rev}
--      | {"damaged"}
--      | {"token", ~rev} if the token to spend is not valid | {"tokens", ~rev} if KEYS[2] is needed
--
-- "mend" is the commit of a repair, which may also update a hash that has facets but no ~isa.
--
-- "dying" means that records of the deleted entry are still being removed, "filling" that staged
-- records of an earlier change are not in place yet, "late" that the check of the schema has
-- expired, and "damaged" that a hash has facets but no ~isa.
--
-- Every write after the first is to a hash that exists, and fields are removed only after others
-- are written, because in a slot that is being migrated, a key that was deleted cannot be written
-- again. If the script is sent again before another change of the entry, it does the rest of its
-- work. A full server refuses HSET, and a server may forbid any single command. So the script first
-- tries each of these commands in a form that changes nothing, if there is one.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~fence', '~dying', '~fill', '~tokens', '~note', '~retired')
if head.err then return redis.error_reply(head.err) end
local live, past, fence, dying = head[1] and head[1] ~= '', head[2] or '', head[3] or '', head[4]
local done = string.sub(past, 1, 12) == ARGV[1]
if not done then
  for i = 1, #past, 12 do
    if string.sub(past, i, i + 11) == ARGV[1] then return {'ok'} end
  end
end
local function has_facets()
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 1) ~= '~' then return true end
  end
end
if done then
  -- This change was committed, and the entry has not changed since.
elseif ARGV[2] == 'create' then
  if live then return {'exists', past} end
  if head[8] then return {'retired', past} end
  if dying then return {'dying', past} end
  if not head[1] and has_facets() then return {'damaged'} end
elseif not live and not (ARGV[2] == 'mend' and not head[1] and has_facets()) then
  return {'absent', past}
end
if not done and (string.sub(past, 1, 12) ~= ARGV[3] or fence ~= ARGV[4]) then return {'conflict', past} end
local time = redis.call('TIME')
if not done and time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[7]) then return {'late', past} end

-- Staged records must not outlive the entry, or replace records that a later change puts in place.
if not done and head[5] and (ARGV[2] == 'delete' or ARGV[#ARGV - 1] == '~fill') then return {'filling', past} end

local n, mark = tonumber(ARGV[15]), live and head[6]
-- A token was issued since the tokens were read.
if not done and ARGV[13] ~= '' and mark ~= ARGV[13] then return {'conflict', past} end
-- A create may spend an invitation, which is in the record of the new entry's tokens.
local made = ARGV[2] == 'create' and ARGV[10] ~= '' and not done
if made then mark = '1' .. ended_in(head[6]) end
-- A script that is sent again has already ended its tokens. It only removes those that it could not
-- remove then. Tokens that were issued since stay.
local ending = {all = ARGV[2] == 'delete' and '1' or ARGV[8], now = ARGV[9], spend = ARGV[10], purpose = ARGV[11], gone = ARGV[12], touched = {}, made = made}
if done then
  if not KEYS[2] and needs_record(mark) then mark = '' end
  ending = {all = '', now = ARGV[9], spend = '', purpose = '', touched = {}}
else
  for i = 16, 15 + n do ending.touched[#ending.touched + 1] = ARGV[i] end
  for i = 16 + n, #ARGV, 2 do ending.touched[#ending.touched + 1] = ARGV[i] end
end
local members = KEYS[2] or ARGV[13] ~= '' and members_of(ARGV[14]) or nil
if needs_record(mark) and not members then return {'tokens', past} end
local tokens = plan_token_endings(members, mark, ending)
if tokens.err then return redis.error_reply(tokens.err) end
if tokens.refused then return {'token', past} end

local remember = ARGV[1] .. string.sub(past, 1, 36)
local refused = not done and permission_error()
if refused then return refused end
local kept = not done and new_note(head[7]) or nil
local function write(command, ...)
  local reply = redis.pcall(command, KEYS[1], ...)
  return type(reply) == 'table' and redis.error_reply(reply.err)
end
-- note_change must be called right after the command that makes the change, and also if the script
-- is sent again. A line that was already written is recognized by its mark.
local stays_noted = kept
local function note_change()
  local refusal, stays = note_of(KEYS[1], ARGV[2], head[7])
  if refusal then error({err = refusal.err}) end
  stays_noted = stays_noted or stays
end
if ARGV[2] == 'delete' then
  if not done then
    refused = write('PERSIST') or write('HDEL', '~none') -- neither changes a live entry
    if refused then return refused end
    local removal = {unpack(ARGV, 16 + n)}
    if ARGV[6] ~= '' then
      for _, text in ipairs({'~dying', ARGV[6], '~since', time[1]}) do removal[#removal + 1] = text end
    end
    if kept then -- the tombstone keeps ~note
      removal[#removal + 1] = '~note'
      removal[#removal + 1] = kept
    end
    if tokens.ended and #tokens.ended > 0 then
      removal[#removal + 1] = '~tokens'
      removal[#removal + 1] = '1 ' .. table.concat(tokens.ended, ' ')
    end
    refused = write('HSET', '~isa', '', '~rev', remember, unpack(removal))
    if refused then return refused end
    note_change()
    redis.call('HDEL', KEYS[1], '~fence')
  else
    note_change()
  end
  strip(KEYS[1], (done or stays_noted) and about ~= '', done or tokens.ended and #tokens.ended > 0)
  end_tombstone(KEYS[1], ARGV[5])
  write_tokens(members, tokens) -- without tokens, the record may hold an invitation
  if KEYS[2] and not done then redis.call('HDEL', KEYS[1], '~tokens') end
  return {'ok'}
end
local set = 16 + n
local value, early, late, canonical, held = {}, {}, {}, {}, {}
-- The field ~skv:FIELD is unset if the facet is now written in canonical form. It is removed after
-- ~rev is written; the HSET that writes ~rev also sets it to the new facet. A further value that
-- becomes the first one is also removed after ~rev, so that the entry never lacks it. Every other
-- further value is removed before ~rev: if it were still there after the commit, its SRK, which is
-- released then, would be missing (I1). The field of a held value is removed after ~rev.
local function becomes_first(name)
  local field, canonical = string.match(name, '^~also:([^:]*):(.*)$')
  return field and (value['~skv:' .. field] or value[field]) == canonical
end
for i = set, #ARGV, 2 do
  value[ARGV[i]] = ARGV[i + 1]
  if string.sub(ARGV[i], 1, 6) == '~held:' then
    held[#held + 1] = ARGV[i]
    held[#held + 1] = ARGV[i + 1]
  end
end
for i = 16, 15 + n do
  local now = string.sub(ARGV[i], 1, 5) == '~skv:' and value[string.sub(ARGV[i], 6)]
  if now then
    late[#late + 1] = ARGV[i]
    canonical[#canonical + 1] = ARGV[i]
    canonical[#canonical + 1] = now
  elseif becomes_first(ARGV[i]) or string.sub(ARGV[i], 1, 6) == '~held:' then
    late[#late + 1] = ARGV[i]
  else
    early[#early + 1] = ARGV[i]
  end
end
if not done then
  if ARGV[2] == 'disable' then
    refused = write('PERSIST') -- as for a delete, so that a full server accepts the HSET
    if refused then return refused end
  end
  local tombstone = ARGV[2] == 'create' and (past ~= '' or fence ~= '')
  if tombstone or ARGV[2] == 'mend' or #early + #late > 0 or fence ~= '' or head[7] then
    refused = write('HSET', '~rev', past) or write('HDEL', '~none') or ARGV[2] == 'mend' and write('PERSIST')
    if refused then return refused end
  end
  if tombstone then -- remove the facets and the time to live before the entry becomes live
    if head[6] then redis.call('HDEL', KEYS[1], '~tokens') end
    if head[1] then strip(KEYS[1], true) end
    redis.call('PERSIST', KEYS[1])
  end
  -- A value that the entry gives up must be held before the entry lacks it.
  if #early > 0 and #held > 0 then
    refused = write('HSET', unpack(held))
    if refused then return refused end
  end
  for i = 1, #early, 2000 do redis.call('HDEL', KEYS[1], unpack(early, i, math.min(i + 1999, #early))) end
  -- The last HSET has ~rev: until then, this change has not been made.
  while #ARGV - set >= 2000 do
    redis.call('HSET', KEYS[1], unpack(ARGV, set, set + 1999))
    set = set + 2000
  end
  if kept then
    canonical[#canonical + 1] = '~note'
    canonical[#canonical + 1] = kept
  end
  if tokens.mark then
    canonical[#canonical + 1] = '~tokens'
    canonical[#canonical + 1] = tokens.mark
  end
  if tombstone then -- a login that saw the earlier entry cannot start a session of this one
    canonical[#canonical + 1] = '~epoch'
    canonical[#canonical + 1] = ARGV[1]
  end
  for i = set, #ARGV do canonical[#canonical + 1] = ARGV[i] end
  refused = write('HSET', '~rev', remember, unpack(canonical))
  if refused then return refused end
end
note_change()
if not done and fence ~= '' then redis.call('HDEL', KEYS[1], '~fence') end
for _, field in ipairs(late) do redis.call('HDEL', KEYS[1], field) end
if may_have_tokens(mark) then finish_tokens(KEYS[1], members, tokens) end
return {'ok', ARGV[2] == 'create' and past == '' and fence == '' and kept or nil}
