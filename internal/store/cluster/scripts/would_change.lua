-- would_change reports whether a command would change a tertiary record. It needs the functions of
-- changes.lua.
--
-- KEYS[1]  the record      ARGV[1]  the command      ARGV[2…]  its arguments after the key
-- Reply: 1 or 0; also 1 if the script cannot find out, because the command itself then reports why
return changes(KEYS[1], table.remove(ARGV, 1), ARGV) and 1 or 0
