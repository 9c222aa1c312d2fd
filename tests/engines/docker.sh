#!/usr/bin/env bash
# A Docker Engine for the tests, from Debian's packages only.
#
#   docker.sh up [DIR]               uses the Engine of this machine, or starts one in DIR; imports isogate-test:small
#                                    (busybox) and isogate-test:base (Debian with python3 and git), both with a user
#                                    `agent` (1000); prints where it listens: unix:///path
#   docker.sh start DIR [option…]    always starts one, with more options of dockerd, and imports only `small`
#   docker.sh again DIR [option…]    restarts the one in DIR, which was killed, on its existing data
#   docker.sh down [DIR]             ends it and removes everything that belongs to it
#
# Exits with 77 if none can run, with the reason on stderr. up may be repeated, and run next to other Engines.
# The images' archives are kept in ~/.cache/isogate-docker, or $ISOGATE_DOCKER_CACHE.
set -euo pipefail
name=docker.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

default_socket=/var/run/docker.sock

choose() {
  dir=$(realpath -m "${1:-/var/tmp/isogate-docker-$(id -u)}")
  socket=$dir/docker.sock
  pid_file=$dir/docker.pid
  [ ${#dir} -le 70 ] || skip "the path $dir is too long for the sockets in it"
}

# Networks belong to the machine: what the first Engine adds to them is removed with it.
remember_network() {
  if ! ip link show docker0 > /dev/null 2>&1; then
    iptables -S FORWARD 2> /dev/null | head -n 1 | cut -d' ' -f3 > "$dir/forward"
    cat /proc/sys/net/ipv4/ip_forward > "$dir/ip_forward"
  fi
}

forget_rules() {
  local table=$1 rule chain
  { iptables -t "$table" -S 2> /dev/null || true; } |
    sed -nE '/^-A (FORWARD|PREROUTING|OUTPUT|POSTROUTING) .*(DOCKER|docker0|172\.17\.)/s/^-A /-D /p' |
    while read -r rule; do eval "iptables -t $table $rule" 2> /dev/null || true; done
  for chain in $(iptables -t "$table" -S 2> /dev/null | sed -n 's/^-N \(DOCKER.*\)/\1/p'); do
    iptables -t "$table" -F "$chain" || true
  done
  for chain in $(iptables -t "$table" -S 2> /dev/null | sed -n 's/^-N \(DOCKER.*\)/\1/p'); do
    iptables -t "$table" -X "$chain" || true
  done
}

# If a later Engine uses them, too, they stay.
another_runs() { grep -qsaE '^(/[^[:cntrl:]]*/)?dockerd' /proc/[0-9]*/cmdline; }

restore_network() {
  [ -e "$dir/forward" ] || return 0
  if another_runs; then return; fi
  ip link delete docker0 2> /dev/null || true
  forget_rules filter
  forget_rules nat
  iptables -P FORWARD "$(cat "$dir/forward")" 2> /dev/null || true
  cat "$dir/ip_forward" > /proc/sys/net/ipv4/ip_forward 2> /dev/null || true
}

start() {
  [ "$(id -u)" -eq 0 ] || skip "only root can start a Docker Engine, and none answers on $default_socket"
  command -v dockerd > /dev/null || skip "dockerd is not installed (scripts/install-deps.sh --tests)"
  if runs "$pid_file" && answers "$socket"; then return; fi
  remove
  mkdir -p -m 0711 "$dir"
  remember_network
  launch "$@"
}

launch() {
  # In its own session: whoever starts the tests may be interrupted.
  setsid dockerd --data-root "$dir/root" --exec-root "$dir/exec" --pidfile "$pid_file" -H "unix://$socket" "$@" \
    > "$dir/log" 2>&1 < /dev/null &
  local process=$!
  disown
  if ! wait_until_it_answers "$pid_file" "$process"; then
    local why
    why=$(grep -E 'level=(fatal|error)|failed' "$dir/log" | tail -n 1 || tail -n 1 "$dir/log")
    remove
    skip "dockerd does not start here: $why"
  fi
}

# Containers outlive an Engine that was killed.
kill_containers() {
  local id process
  for id in $(ls "$dir/root/containers" 2> /dev/null); do
    for process in $(grep -lsF "$id" /proc/[0-9]*/cgroup | cut -d/ -f3); do kill -KILL "$process" 2> /dev/null || true; done
  done
  for process in $(grep -lsF "$dir/exec/containerd" /proc/[0-9]*/cmdline | cut -d/ -f3); do
    kill -KILL "$process" 2> /dev/null || true
  done
}

remove() {
  [ -d "$dir" ] || return 0
  [ -z "$(ls -A "$dir")" ] || [ -e "$dir/log" ] || skip "$dir is not of an Engine of the tests"
  end "$pid_file"
  kill_containers
  unmount_all
  restore_network
  rm -rf "$dir" || { sleep 1; unmount_all; rm -rf "$dir"; }
}

up() {
  if ! { runs "$pid_file" && answers "$socket"; } && answers "$default_socket"; then
    socket=$default_socket
    note "uses the Engine that answers on $socket"
  else
    start
  fi
  import small
  import base
  # The image that the backend uses by default.
  docker -H "unix://$socket" image inspect isogate-sandbox:latest > /dev/null 2>&1 ||
    docker -H "unix://$socket" tag isogate-test:base isogate-sandbox:latest
  echo "unix://$socket"
}

verb=${1:-}
shift || true
case $verb in
  up) choose "${1:-}"; up ;;
  start) choose "${1:?DIR}"; shift; start "$@"; import small; echo "unix://$socket" ;;
  again)
    choose "${1:?DIR}"
    shift
    # A process that nobody has reaped yet would be taken for a running one.
    rm -f "$pid_file" "$dir/exec/containerd/containerd.pid"
    launch "$@"
    ;;
  down) choose "${1:-}"; remove ;;
  *) echo "usage: docker.sh up [DIR] | start DIR [option…] | again DIR [option…] | down [DIR]" >&2; exit 2 ;;
esac
