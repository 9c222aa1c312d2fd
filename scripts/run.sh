#!/usr/bin/env bash
# Installs what is missing, builds, starts the gateway on 127.0.0.1:9090 with the strongest backend this
# machine can prove, runs one exec, one write and one read through it, and keeps serving until Ctrl-C.
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

say "starting the gateway (state in $state_dir)"
"$bin" serve --config configs/local-dev.yaml --state-dir "$state_dir" "$@" &
gateway=$!
trap 'kill -TERM "$gateway" 2>/dev/null || true; wait "$gateway" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export ISOGATE_URL=unix:$state_dir/isogate.sock
for _ in $(seq 300); do
  kill -0 "$gateway" 2>/dev/null || { wait "$gateway" || exit $?; }
  curl -fsS --unix-socket "$state_dir/isogate.sock" http://localhost/readyz >/dev/null 2>&1 && break
  sleep 0.1
done

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

cat <<EOM

== serving on http://127.0.0.1:9090 until Ctrl-C; the key is in $state_dir/local.key
   curl -s -H "Authorization: Bearer \$(cat $state_dir/local.key)" -H 'Content-Type: application/json' \\
        -d '{"command":"id; echo hi"}' http://127.0.0.1:9090/exec
EOM
wait "$gateway"
