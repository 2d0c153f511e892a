-- This source precedes scripts that leave a tombstone, or create an entry over one.
--
-- An entry whose ~isa is empty was deleted, whatever other fields the hash still has: only a delete
-- writes an empty ~isa. A hash that has facets but no ~isa is damaged.

local kept_fields = {['~rev'] = true, ['~fence'] = true, ['~dying'] = true, ['~since'] = true, ['~drop'] = true}

-- strip removes the fields that a tombstone does not keep. It removes ~isa last, because an empty
-- ~isa shows that the other fields must be removed. With keep_note, ~note stays, which holds lines
-- that wait for the history. With keep_tokens, ~tokens stays, which names tokens that have ended
-- but may still be in their record, so that none of them becomes valid again as an invitation.
local function strip(entry, keep_note, keep_tokens)
  local removed = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if not kept_fields[field] and field ~= '~isa' and not (keep_note and field == '~note') and not (keep_tokens and field == '~tokens') then removed[#removed + 1] = field end
  end
  removed[#removed + 1] = '~isa'
  for i = 1, #removed, 2000 do redis.call('HDEL', entry, unpack(removed, i, math.min(i + 1999, #removed))) end
end
