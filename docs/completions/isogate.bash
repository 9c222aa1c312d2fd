# bash completion for isogate: source it, or put it in /usr/share/bash-completion/completions/isogate
_isogate() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
  local path='' word next i options='' plain='' files=''
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == -- ]] && { COMPREPLY=($(compgen -c -f -- "$current")); return; }
    next="${path:+$path }$word"
    case "$next" in
      'serve'|'exec'|'shell'|'ps'|'logs'|'attach'|'kill'|'read'|'write'|'ls'|'rm'|'sandbox'|'sandbox ls'|'sandbox rm'|'probe'|'plugin'|'plugin describe'|'plugin list'|'config'|'config check'|'config show'|'config schema'|'config docs'|'key'|'key new'|'key hash'|'completion') path="$next" ;;
    esac
  done
  case "$path $previous" in
    'serve --config') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'serve --port') COMPREPLY=(); return ;;
    'serve --backend') COMPREPLY=(); return ;;
    'serve --listen') COMPREPLY=(); return ;;
    'serve --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'serve --instance') COMPREPLY=(); return ;;
    'serve --plugin-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'serve --shell') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'serve --workdir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'serve --toolchain-path') COMPREPLY=(); return ;;
    'serve --shared-dirs') COMPREPLY=(); return ;;
    'serve --min-isolation') COMPREPLY=($(compgen -W 'none namespace container vm' -- "$current")); return ;;
    'serve --fallback') COMPREPLY=($(compgen -W 'never allowed' -- "$current")); return ;;
    'serve --anonymous') COMPREPLY=($(compgen -W 'never loopback' -- "$current")); return ;;
    'serve --hosts') COMPREPLY=(); return ;;
    'serve --keys') COMPREPLY=(); return ;;
    'serve --tls-cert') COMPREPLY=(); return ;;
    'serve --tls-key') COMPREPLY=(); return ;;
    'serve --tls-client-ca') COMPREPLY=(); return ;;
    'serve --tls-client-auth') COMPREPLY=($(compgen -W 'required optional' -- "$current")); return ;;
    'serve --tls-clients') COMPREPLY=(); return ;;
    'serve --tls-handshake-timeout-sec') COMPREPLY=(); return ;;
    'serve --cors-origins') COMPREPLY=(); return ;;
    'serve --metrics-listen') COMPREPLY=(); return ;;
    'serve --probe-interval-sec') COMPREPLY=(); return ;;
    'serve --sandbox-idle-timeout-sec') COMPREPLY=(); return ;;
    'serve --drain-timeout-sec') COMPREPLY=(); return ;;
    'serve --on-shutdown') COMPREPLY=($(compgen -W 'remove keep' -- "$current")); return ;;
    'serve --wait-for-sidecar') COMPREPLY=(); return ;;
    'serve --wait-for-sidecar-timeout-sec') COMPREPLY=(); return ;;
    'serve --log-level') COMPREPLY=($(compgen -W 'debug info warn error' -- "$current")); return ;;
    'serve --log-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'serve --limits-max-connections') COMPREPLY=(); return ;;
    'serve --limits-max-connections-per-peer') COMPREPLY=(); return ;;
    'serve --limits-max-requests-per-connection') COMPREPLY=(); return ;;
    'serve --limits-max-header-bytes') COMPREPLY=(); return ;;
    'serve --limits-max-headers') COMPREPLY=(); return ;;
    'serve --limits-max-json-bytes') COMPREPLY=(); return ;;
    'serve --limits-max-held-bytes') COMPREPLY=(); return ;;
    'serve --limits-tenant-share-percent') COMPREPLY=(); return ;;
    'serve --limits-header-timeout-sec') COMPREPLY=(); return ;;
    'serve --limits-body-idle-timeout-sec') COMPREPLY=(); return ;;
    'serve --limits-idle-timeout-sec') COMPREPLY=(); return ;;
    'serve --limits-write-timeout-sec') COMPREPLY=(); return ;;
    'serve --limits-min-bytes-per-sec') COMPREPLY=(); return ;;
    'serve --limits-max-execs') COMPREPLY=(); return ;;
    'serve --limits-max-execs-per-sandbox') COMPREPLY=(); return ;;
    'serve --limits-exec-queue') COMPREPLY=(); return ;;
    'serve --limits-exec-queue-timeout-sec') COMPREPLY=(); return ;;
    'serve --limits-max-sandboxes') COMPREPLY=(); return ;;
    'serve --limits-max-sandboxes-per-tenant') COMPREPLY=(); return ;;
    'serve --limits-max-disk-mb-per-tenant') COMPREPLY=(); return ;;
    'serve --limits-list-max-entries') COMPREPLY=(); return ;;
    'serve --exec-timeout-sec') COMPREPLY=(); return ;;
    'serve --exec-max-timeout-sec') COMPREPLY=(); return ;;
    'serve --exec-max-background-sec') COMPREPLY=(); return ;;
    'serve --exec-keep-ended-sec') COMPREPLY=(); return ;;
    'serve --exec-max-output-bytes') COMPREPLY=(); return ;;
    'serve --exec-max-max-output-bytes') COMPREPLY=(); return ;;
    'serve --exec-env') COMPREPLY=(); return ;;
    'serve --backends') COMPREPLY=(); return ;;
    'exec --url') COMPREPLY=(); return ;;
    'exec --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'exec --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'exec --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'exec -c') COMPREPLY=(); return ;;
    'exec --command') COMPREPLY=(); return ;;
    'exec --agent') COMPREPLY=(); return ;;
    'exec --timeout') COMPREPLY=(); return ;;
    'exec --env') COMPREPLY=(); return ;;
    'exec --cwd') COMPREPLY=(); return ;;
    'exec --user') COMPREPLY=(); return ;;
    'exec --memory-mb') COMPREPLY=(); return ;;
    'exec --cpu-percent') COMPREPLY=(); return ;;
    'exec --max-pids') COMPREPLY=(); return ;;
    'exec --backend') COMPREPLY=(); return ;;
    'exec --min-isolation') COMPREPLY=($(compgen -W 'none namespace container vm' -- "$current")); return ;;
    'exec --artifact-dir') COMPREPLY=(); return ;;
    'exec --max-output') COMPREPLY=(); return ;;
    'shell --url') COMPREPLY=(); return ;;
    'shell --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'shell --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'shell --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'shell --timeout') COMPREPLY=(); return ;;
    'shell --env') COMPREPLY=(); return ;;
    'shell --cwd') COMPREPLY=(); return ;;
    'shell --user') COMPREPLY=(); return ;;
    'shell --memory-mb') COMPREPLY=(); return ;;
    'shell --cpu-percent') COMPREPLY=(); return ;;
    'shell --max-pids') COMPREPLY=(); return ;;
    'shell --backend') COMPREPLY=(); return ;;
    'shell --min-isolation') COMPREPLY=($(compgen -W 'none namespace container vm' -- "$current")); return ;;
    'ps --url') COMPREPLY=(); return ;;
    'ps --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'ps --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'ps --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'ps --agent') COMPREPLY=(); return ;;
    'logs --url') COMPREPLY=(); return ;;
    'logs --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'logs --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'logs --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'attach --url') COMPREPLY=(); return ;;
    'attach --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'attach --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'attach --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'kill --url') COMPREPLY=(); return ;;
    'kill --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'kill --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'kill --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'kill -s') COMPREPLY=(); return ;;
    'kill --signal') COMPREPLY=(); return ;;
    'read --url') COMPREPLY=(); return ;;
    'read --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'read --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'read --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'read --agent') COMPREPLY=(); return ;;
    'read --scope') COMPREPLY=($(compgen -W 'workspace sandbox' -- "$current")); return ;;
    'read --user') COMPREPLY=(); return ;;
    'read -o') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'read --output') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'read --offset') COMPREPLY=(); return ;;
    'read --limit') COMPREPLY=(); return ;;
    'write --url') COMPREPLY=(); return ;;
    'write --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'write --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'write --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'write --agent') COMPREPLY=(); return ;;
    'write --scope') COMPREPLY=($(compgen -W 'workspace sandbox' -- "$current")); return ;;
    'write --user') COMPREPLY=(); return ;;
    'write --mode') COMPREPLY=(); return ;;
    'ls --url') COMPREPLY=(); return ;;
    'ls --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'ls --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'ls --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'ls --agent') COMPREPLY=(); return ;;
    'ls --scope') COMPREPLY=($(compgen -W 'workspace sandbox' -- "$current")); return ;;
    'ls --user') COMPREPLY=(); return ;;
    'rm --url') COMPREPLY=(); return ;;
    'rm --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'rm --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'rm --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'rm --agent') COMPREPLY=(); return ;;
    'rm --scope') COMPREPLY=($(compgen -W 'workspace sandbox' -- "$current")); return ;;
    'rm --user') COMPREPLY=(); return ;;
    'sandbox ls --url') COMPREPLY=(); return ;;
    'sandbox ls --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'sandbox ls --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'sandbox ls --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'sandbox rm --url') COMPREPLY=(); return ;;
    'sandbox rm --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'sandbox rm --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'sandbox rm --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'probe --url') COMPREPLY=(); return ;;
    'probe --ca-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'probe --state-dir') COMPREPLY=($(compgen -d -- "$current")); return ;;
    'probe --key-file') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'probe --config') COMPREPLY=($(compgen -f -- "$current")); return ;;
    'probe --backend') COMPREPLY=(); return ;;
    'plugin list --config') COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  case "$path" in
    '') options='--version -h --help'; plain='serve exec shell ps logs attach kill read write ls rm sandbox probe plugin config key completion'; files='' ;;
    'serve') options='-h --help --config --port --backend --listen --state-dir --instance --plugin-dir --shell --workdir --toolchain-path --shared-dirs --multi-agent --require-remote --min-isolation --fallback --allow-unisolated --anonymous --hosts --keys --tls-cert --tls-key --tls-client-ca --tls-client-auth --tls-clients --tls-handshake-timeout-sec --cors-origins --metrics-listen --probe-interval-sec --sandbox-idle-timeout-sec --drain-timeout-sec --on-shutdown --wait-for-sidecar --wait-for-sidecar-timeout-sec --log-level --log-file --log-access --limits-max-connections --limits-max-connections-per-peer --limits-max-requests-per-connection --limits-max-header-bytes --limits-max-headers --limits-max-json-bytes --limits-max-held-bytes --limits-tenant-share-percent --limits-header-timeout-sec --limits-body-idle-timeout-sec --limits-idle-timeout-sec --limits-write-timeout-sec --limits-min-bytes-per-sec --limits-max-execs --limits-max-execs-per-sandbox --limits-exec-queue --limits-exec-queue-timeout-sec --limits-max-sandboxes --limits-max-sandboxes-per-tenant --limits-max-disk-mb-per-tenant --limits-list-max-entries --exec-timeout-sec --exec-max-timeout-sec --exec-max-background-sec --exec-keep-ended-sec --exec-max-output-bytes --exec-max-max-output-bytes --exec-env --backends'; plain=''; files='' ;;
    'exec') options='-h --help --url --ca-file --state-dir --key-file --json -c --command --agent --stdin -i --interactive -t --tty -d --background --timeout --env --cwd --user --memory-mb --cpu-percent --max-pids --backend --min-isolation --artifact-dir --max-output --stream --lines'; plain=''; files='' ;;
    'shell') options='-h --help --url --ca-file --state-dir --key-file --rm --timeout --env --cwd --user --memory-mb --cpu-percent --max-pids --backend --min-isolation'; plain=''; files='' ;;
    'ps') options='-h --help --url --ca-file --state-dir --key-file --json --agent'; plain=''; files='' ;;
    'logs') options='-h --help --url --ca-file --state-dir --key-file --json -f --follow'; plain=''; files='' ;;
    'attach') options='-h --help --url --ca-file --state-dir --key-file --read-only'; plain=''; files='' ;;
    'kill') options='-h --help --url --ca-file --state-dir --key-file --json -s --signal'; plain=''; files='' ;;
    'read') options='-h --help --url --ca-file --state-dir --key-file --json --agent --scope --user -o --output --offset --limit'; plain=''; files='' ;;
    'write') options='-h --help --url --ca-file --state-dir --key-file --json --agent --scope --user --append --mode --durable'; plain=''; files=' -f' ;;
    'ls') options='-h --help --url --ca-file --state-dir --key-file --json --agent --scope --user -R --recursive -l --long'; plain=''; files='' ;;
    'rm') options='-h --help --url --ca-file --state-dir --key-file --json --agent --scope --user -r --recursive'; plain=''; files='' ;;
    'sandbox') options='-h --help'; plain='ls rm'; files='' ;;
    'sandbox ls') options='-h --help --url --ca-file --state-dir --key-file --json --orphans'; plain=''; files='' ;;
    'sandbox rm') options='-h --help --url --ca-file --state-dir --key-file --json --purge --orphan --running'; plain=''; files='' ;;
    'probe') options='-h --help --url --ca-file --state-dir --key-file --json --config --backend'; plain=''; files='' ;;
    'plugin') options='-h --help'; plain='describe list'; files='' ;;
    'plugin describe') options='-h --help --json'; plain=''; files=' -f' ;;
    'plugin list') options='-h --help --config --json'; plain=''; files='' ;;
    'config') options='-h --help'; plain='check show schema docs'; files='' ;;
    'config check') options='-h --help'; plain=''; files=' -f' ;;
    'config show') options='-h --help'; plain=''; files=' -f' ;;
    'config schema') options='-h --help'; plain=''; files='' ;;
    'config docs') options='-h --help'; plain=''; files='' ;;
    'key') options='-h --help'; plain='new hash'; files='' ;;
    'key new') options='-h --help --json'; plain=''; files='' ;;
    'key hash') options='-h --help --json'; plain=''; files='' ;;
    'completion') options='-h --help'; plain='bash zsh fish'; files='' ;;
  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$plain" $files -- "$current"))
  fi
}
complete -o filenames -o bashdefault -F _isogate isogate
