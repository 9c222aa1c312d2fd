# fish completion for isogate: put it in ~/.config/fish/completions/isogate.fish
function __isogate_complete
  set -l words (commandline -opc) (commandline -ct)
  command -q isogate; and isogate _complete $words[2..] 2> /dev/null
end
complete -c isogate -f -a '(__isogate_complete)[2..]'
complete -c isogate -n 'contains (__isogate_complete)[1] files directories' -F
