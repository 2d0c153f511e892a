#compdef userdb
# zsh completion for userdb
_userdb() {
    local -a offers
    offers=("${(@f)$(userdb __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z "${offers[1]}" ]]; then
        _files
        return
    fi
    offers=("${(@)offers//:/\\:}")
    offers=("${(@)offers/$'\t'/:}")
    _describe userdb offers
}
if [[ "${funcstack[1]}" = _userdb ]]; then
    _userdb "$@"
else
    compdef _userdb userdb
fi
