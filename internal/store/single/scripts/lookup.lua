-- lookup follows SRKs to their entries in one step (I2, I4). The caller checks that the entries
-- have the values.
--
-- KEYS     SRKs
-- ARGV[1]  the prefix of the namespace
-- Reply: for each SRK nil | {PRK, field, value, …} | {"", error}
--
-- It reads entries whose keys it does not declare. If a server forbids that, the engine uses GET
-- and HGETALL instead of this script.
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
