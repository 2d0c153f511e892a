-- guard precedes change.lua and tertiary.lua. It reads the entry and the stored schema for them.
--
-- KEYS[1]  the entry, a hash
-- KEYS[2]  ~/schema/TYPE, a hash
-- KEYS[3]  ~/types, the set of types that have a stored schema
-- ARGV[1]  the PRK, relative
-- ARGV[2]  the prefix of the namespace
-- ARGV[3]  the rev to write
-- ARGV[4]  the fingerprint of the caller's schema
-- ARGV[5]  that schema as JSON
-- ARGV[6]  "1" if that schema may be stored when none is stored yet
-- ARGV[7]  the type, as ~isa names it
--
-- This source itself writes nothing; only its functions do. A script can thus find every problem
-- before the first write (I7).

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local entry, schema = KEYS[1], KEYS[2]
local prk, prefix, own = ARGV[1], ARGV[2], ARGV[3]

local head = redis.pcall('HMGET', entry, '~isa', '~rev', '~fence', '~fill', '~tokens', '~note', '~drop', '~retired')
if failed(head) then return redis.error_reply(head.err) end
-- past is the entry's ~rev: its last revs, at most four, of 12 characters each, the newest first.
-- own is the rev of this change.
local live, past = head[1] and head[1] ~= '', head[2] or ''
local rev = string.sub(past, 1, 12)

-- remembered reports whether the entry's ~rev contains the rev of this change. If so, the change
-- was committed and only the reply was lost (I7).
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

-- store_schema stores the caller's schema if none is stored. It must be called before any other
-- function that changes something: a server that is full or read-only then refuses this write, and
-- nothing has changed.
local function store_schema()
  if not unstored then return nil end
  local reply = redis.pcall('HSET', schema, 'fingerprint', ARGV[4], 'schema', ARGV[5])
  if failed(reply) then return redis.error_reply(reply.err) end
  redis.call('SADD', KEYS[3], ARGV[7])
end

-- name_field returns the field of ~/schema/TYPE that names a tertiary record. A delete drops the
-- records of every such name, whichever program declares it, so the field is written before the
-- record.
local function name_field(key) return 'tertiary:' .. string.sub(key, #entry + 2) end

-- in_pieces runs a command with a long list of arguments, since unpack has a limit.
local function in_pieces(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end
