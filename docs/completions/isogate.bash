# bash completion for isogate: source it, or put it in /usr/share/bash-completion/completions/isogate
_isogate() {
  local -a offered also=()
  mapfile -t offered < <(isogate _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  case "${offered[0]}" in
    files) also=(-f) ;;
    directories) also=(-d) ;;
    programs) also=(-c -f) ;;
  esac
  offered=("${offered[@]:1}")
  [[ ${#also[@]} == 0 ]] || compopt -o filenames 2> /dev/null
  local current="${COMP_WORDS[COMP_CWORD]}"
  [[ $current == = ]] && current=
  mapfile -t COMPREPLY < <(compgen -W "${offered[*]%%$'\t'*}" "${also[@]}" -- "$current")
}
complete -o bashdefault -F _isogate isogate
