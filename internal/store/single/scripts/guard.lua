-- guard: shared beginning of every script that changes data.
--
-- KEYS[1]  the entry, a hash          KEYS[2]  ~/schema/TYPE, a hash
-- KEYS[3]  ~/types, the set of types that have a schema stored
-- ARGV[1]  own PRK, relative          ARGV[2]  namespace prefix
-- ARGV[3]  the rev to be written     ARGV[4]  fingerprint of the caller's schema
-- ARGV[5]  that schema as JSON        ARGV[6]  "1": it may be stored where none is
-- ARGV[7]  the type, as ~isa has it
--
-- Reads only: whatever is wrong is found before the first write (I7).

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local entry, schema = KEYS[1], KEYS[2]
local prk, prefix, own = ARGV[1], ARGV[2], ARGV[3]

local head = redis.pcall('HMGET', entry, '~isa', '~rev', '~fence', '~fill', '~tokens', '~note', '~drop')
if failed(head) then return redis.error_reply(head.err) end
local live, past = head[1] and head[1] ~= '', head[2] or ''
local rev = string.sub(past, 1, 12)

-- I7: a rev that the entry remembers was committed before, and only the reply was lost.
local function remembered()
  for i = 1, #past, 12 do
    if string.sub(past, i, i + 11) == own then return true end
  end
  return false
end

local stored = redis.pcall('HGET', schema, 'fingerprint')
if failed(stored) then return redis.error_reply(stored.err) end
local unstored = not stored

local function refused_by_schema()
  if stored and stored ~= ARGV[4] then return {'schema', redis.call('HGET', schema, 'schema') or ''} end
  if unstored and ARGV[6] ~= '1' then return {'unstored'} end
end

-- The first write of each script goes through here: a server that refuses writes (full, read-only)
-- refuses this one, and then nothing was written.
local function store_schema()
  if not unstored then return nil end
  local reply = redis.pcall('HSET', schema, 'fingerprint', ARGV[4], 'schema', ARGV[5])
  if failed(reply) then return redis.error_reply(reply.err) end
  redis.call('SADD', KEYS[3], ARGV[7])
end

-- name_field is the field of the schema that names a tertiary record. A delete drops those of every
-- name that was ever written under, whichever program declares it; so the field comes before the
-- record.
local function name_field(key) return 'tertiary:' .. string.sub(key, #entry + 2) end

-- unpack has a limit of its own: long argument lists go in pieces.
local function in_pieces(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end
