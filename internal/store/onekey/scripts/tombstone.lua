-- This source precedes scripts that leave a tombstone, or create an entry over one.
--
-- An entry whose ~isa is empty was deleted, whatever other fields the hash still has: only a delete
-- writes an empty ~isa. A hash that has facets but no ~isa is damaged.

local kept_fields = {['~rev'] = true, ['~fence'] = true, ['~dying'] = true, ['~since'] = true, ['~drop'] = true, ['~retired'] = true}

local function is_kept(field) return kept_fields[field] or string.sub(field, 1, 6) == '~held:' end

-- strip removes the fields that a tombstone does not keep. It removes ~isa last, because an empty
-- ~isa shows that the other fields must be removed. With keep_note, ~note stays, which holds lines
-- that wait for the history. With keep_tokens, ~tokens stays, which names tokens that have ended
-- but may still be in their record, so that none of them becomes valid again as an invitation.
local function strip(entry, keep_note, keep_tokens)
  local removed = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if not is_kept(field) and field ~= '~isa' and not (keep_note and field == '~note') and not (keep_tokens and field == '~tokens') then removed[#removed + 1] = field end
  end
  removed[#removed + 1] = '~isa'
  for i = 1, #removed, 2000 do redis.call('HDEL', entry, unpack(removed, i, math.min(i + 1999, #removed))) end
end

-- end_tombstone gives a tombstone its time to live: the given number of seconds or, if that is
-- longer, the time until none of its values is held. An existing time to live stays if no value is
-- held for longer. If the UID is retired, the tombstone never expires.
local function end_tombstone(entry, seconds)
  local fields, life, rest = redis.call('HGETALL', entry), redis.call('PTTL', entry), 0
  for i = 1, #fields, 2 do
    if fields[i] == '~retired' then return life ~= -1 and redis.call('PERSIST', entry) end
    if string.sub(fields[i], 1, 6) == '~held:' then rest = math.max(rest, tonumber(fields[i + 1]) or 0) end
  end
  if rest > 0 then
    local time = redis.call('TIME')
    rest = rest - time[1] * 1000 - math.floor(time[2] / 1000)
  end
  if life ~= -1 and life >= rest then return end
  redis.call('PEXPIRE', entry, string.format('%.0f', math.max(seconds * 1000, rest)))
end
