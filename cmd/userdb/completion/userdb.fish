# fish completion for userdb
function __userdb_complete
    set -l words (commandline -opc)
    set -a words (commandline -ct)
    userdb __complete -- $words[2..-1] 2>/dev/null
end
complete -c userdb -a '(__userdb_complete)'
