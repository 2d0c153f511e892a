# bash completion for userdb
_userdb() {
    local IFS=$'\n'
    COMPREPLY=($(userdb __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _userdb userdb
