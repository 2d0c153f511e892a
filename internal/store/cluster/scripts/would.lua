-- would: whether a command would change a tertiary record. After changes.lua.
--
-- KEYS[1]  the record      ARGV[1]  the command      ARGV[2…]  what follows the key
-- Reply: 1 or 0; 1 also where it cannot be asked: the command says why
return changes(KEYS[1], table.remove(ARGV, 1), ARGV) and 1 or 0
