-- would_change: return whether a command would change a tertiary record. Needs changes.lua.
--
-- KEYS[1]  the record      ARGV[1]  the command      ARGV[2…]  what follows the key
-- Reply: 1 or 0; also 1 if that cannot be found out: the command itself reports why
return changes(KEYS[1], table.remove(ARGV, 1), ARGV) and 1 or 0
