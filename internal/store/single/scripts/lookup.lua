-- lookup: from SRKs to entries, in one step (I2, I4). The caller checks that the entry holds the value.
--
-- KEYS     SRKs
-- ARGV[1]  namespace prefix
-- Reply: one item for each SRK: nil | {PRK, field, value, …} | {"", error}
--
-- The entry's key is known only here; a server that forbids that is asked in two rounds of GET and HGETALL.
local out = {}
for i, key in ipairs(KEYS) do
  local srv = redis.pcall('GET', key)
  if type(srv) == 'table' then
    out[i] = {'', srv.err}
  elseif srv then
    local prk = string.match(srv, '^([^ ]*)')
    local entry = redis.pcall('HGETALL', ARGV[1] .. prk)
    if entry.err then
      out[i] = {'', entry.err}
    else
      table.insert(entry, 1, prk)
      out[i] = entry
    end
  else
    out[i] = false
  end
end
return out
