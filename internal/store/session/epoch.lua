-- epoch returns the epoch to which a new session of an entry is bound. The epoch is a text in the
-- entry. When it changes, all sessions end. If the entry has no epoch, the script stores one.
--
-- KEYS[1]  the entry
-- ARGV[1]  type
-- ARGV[2], ARGV[3], ARGV[4]  the entry's rev (the first twelve characters of ~rev), ~epoch and
--          ~passwd as a login read them, "" for none
-- ARGV[5]  the epoch for an entry without one
-- ARGV[6]  the entry's ~factor as a login read it, "" for none
-- Reply: {"ok", epoch} | {"absent"}: the entry is gone or disabled
--        | {"conflict"}: since the login read the entry, all sessions have ended, the password or
--          the mark of second factors has changed, or the entry was created again
--
-- A login that read an entry without an epoch may have read an earlier entry with the same key. The
-- rev that it read must therefore be among those that this entry remembers. If this entry was
-- created over a tombstone, its first epoch is the rev of that create, and the rev that the login
-- read must not be older than that.
local head = redis.pcall('HMGET', KEYS[1], '~isa', '~rev', '~epoch', '~passwd', '~disabled', '~factor')
if head.err then return redis.error_reply(head.err) end
local function text(n) return head[n] or '' end
local past, epoch, seen = text(2), text(3), ARGV[2]
if text(1) ~= ARGV[1] or text(5) ~= '' then return {'absent'} end
if text(4) ~= ARGV[4] or text(6) ~= ARGV[6] then return {'conflict'} end
local same = epoch ~= '' and epoch == ARGV[3]
if ARGV[3] == '' then
  local at, made = seen == '' and past == '' and 1, (epoch == '' or string.sub(epoch, 1, 1) == '-') and #past + 1
  for i = 1, #past, 12 do
    local rev = string.sub(past, i, i + 11)
    if rev == seen then at = at or i end
    if rev == epoch then made = made or i end
  end
  same = at and made and at <= made
end
if not same then return {'conflict'} end
if epoch == '' then
  epoch = ARGV[5]
  local reply = redis.pcall('HSET', KEYS[1], '~epoch', epoch)
  if type(reply) == 'table' then return redis.error_reply(reply.err) end
end
return {'ok', epoch}
