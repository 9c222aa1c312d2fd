#!/usr/bin/env bash
# Installs what is missing, builds, starts the gateway on 127.0.0.1:9090 with the strongest backend this
# machine can prove, runs one exec, one write and one read through it, and keeps serving until Ctrl-C, which
# lets running calls end; a second Ctrl-C stops at once. Exits with the gateway's own code.
#
#   scripts/run.sh [argument of `isogate serve`…]      e.g. --listen 127.0.0.1:9191
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

./scripts/install-deps.sh
build release -DISOGATE_TESTS=OFF -DISOGATE_BENCH=OFF

bin=build/release/bin/isogate
if [ "$(id -u)" = 0 ]; then
  state_dir=${ISOGATE_STATE_DIR:-/var/lib/isogate}
else
  state_dir=${ISOGATE_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/isogate}
fi
log=$(mktemp "${TMPDIR:-/tmp}/isogate-run.XXXXXX")

alive() { kill -0 "$gateway" 2> /dev/null; }

# Its exit code, even if signals interrupt the wait.
wait_for_gateway() {
  while alive; do wait "$gateway" || true; done
  wait "$gateway"
}

# A gateway takes its first signal for "drain", the next one for "at once".
stop() {
  local code=$? ended=0
  trap - EXIT
  trap 'kill -TERM "$gateway" 2> /dev/null || true' INT TERM HUP
  if alive; then
    say "stopping: calls in flight may end; Ctrl-C again stops at once"
    kill -TERM "$gateway" 2> /dev/null || true
  fi
  wait_for_gateway || ended=$?
  say "the gateway has ended with exit code $ended (its log: $log)"
  [ "$code" -gt 128 ] && code=0
  [ "$ended" = 0 ] || code=$ended
  exit "$code"
}

# logged EVENT FIELD: that field of the last line of EVENT in the gateway's log; else nothing.
logged() {
  sed -n '/"event":"'"$1"'"/s/.*"'"$2"'":"\([^"]*\)".*/\1/p' "$log" | tail -n 1
}

say "starting the gateway (its log: $log)"
# In a separate process group: Ctrl-C reaches only this script, which passes one signal on.
set -m
ISOGATE_LOG_FILE='' ISOGATE_STATE_DIR=$state_dir \
  "$bin" serve --config configs/local-dev.yaml "$@" > "$log" 2>&1 < /dev/null &
gateway=$!
set +m
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Its own log says when it is ready: the process that answers on the socket may be another
# gateway.
for _ in $(seq 300); do
  alive || break
  addresses=$(logged ready listen)
  [ -z "$addresses" ] || break
  sleep 0.1
done
if [ -z "${addresses:-}" ]; then
  say "the gateway did not become ready; its output:" >&2
  cat "$log" >&2
  exit 1
fi

tcp='' socket=''
for address in $addresses; do
  case $address in
    unix:*) socket=${socket:-$address} ;;
    *) tcp=${tcp:-$address} ;;
  esac
done
export ISOGATE_STATE_DIR ISOGATE_URL=${socket:-http://$tcp}
ISOGATE_STATE_DIR=$(logged listening state_dir)

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
say "what this machine can prove"
"$bin" probe
say "one exec, one write, one read"
show "$bin" exec -c 'echo "hello from $(uname -sr), uid $(id -u), in $PWD"'
printf '\n$ echo "written through the gateway" | isogate write notes/first.txt -\n'
echo "written through the gateway" | "$bin" write notes/first.txt -
show "$bin" read notes/first.txt

backend=$(logged exec_ended backend) isolation=$(logged sandbox_opened isolation)
if [ "$isolation" = none ]; then
  say "served by \`$backend\`: NO ISOLATION, commands run on this machine (a developer's fallback; the reasons are above)"
else
  say "served by \`$backend\`, isolation ${isolation:-as above}"
fi
say "serving on${tcp:+ http://$tcp}${socket:+ $socket} until Ctrl-C; the log is in $log"
if [ -n "$tcp" ] && [ -r "$ISOGATE_STATE_DIR/local.key" ]; then
  cat << EOM
   curl -s -H "Authorization: Bearer \$(cat $ISOGATE_STATE_DIR/local.key)" -H 'Content-Type: application/json' \\
        -d '{"command":"id; echo hi"}' http://$tcp/exec
EOM
fi
wait_for_gateway
