-- tombstone: what scripts begin with that leave one of an entry, or make an entry over one.
--
-- An entry whose ~isa is empty was deleted, whatever else the hash still has: only a delete writes
-- that. A hash with facets and without ~isa is damage.

local stays = {['~rev'] = true, ['~fence'] = true, ['~dying'] = true, ['~since'] = true, ['~drop'] = true}

-- strip removes what a tombstone does not keep, ~isa last: until then it is known that the rest is
-- to go. If noted is true, ~note stays, with lines that wait for the history, and if spent is,
-- ~tokens, which names tokens of the entry that have ended and may be in their record still: no
-- invitation among them is good again.
local function strip(entry, noted, spent)
  local going = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if not stays[field] and field ~= '~isa' and not (noted and field == '~note') and not (spent and field == '~tokens') then going[#going + 1] = field end
  end
  going[#going + 1] = '~isa'
  for i = 1, #going, 2000 do redis.call('HDEL', entry, unpack(going, i, math.min(i + 1999, #going))) end
end
