#!/usr/bin/env bash
# podman's copy of the Engine API for the tests, from Debian's packages alone.
#
#   podman.sh up [DIR]      starts one in DIR, imports isogate-test:small, prints where it listens: unix:///path
#   podman.sh down [DIR]    ends it, with all that is its own
#
# Exits with 77 where there can be none, with the reason on stderr. It has no network but `none`.
set -euo pipefail
name=podman.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dir=$(realpath -m "${2:-/var/tmp/isogate-podman-$(id -u)}")
socket=$dir/podman.sock
pid_file=$dir/podman.pid

# crun refuses machines with both kinds of cgroups.
options=(--root "$dir/root" --runroot "$dir/run" --tmpdir "$dir/tmp" --runtime runc --cgroup-manager cgroupfs
  --events-backend file --network-config-dir "$dir/net")

remove() {
  [ -d "$dir" ] || return 0
  [ -z "$(ls -A "$dir")" ] || [ -e "$dir/log" ] || skip "$dir is not of an Engine of the tests"
  timeout 30 podman "${options[@]}" rm --all --force --time 0 > /dev/null 2>&1 || true
  end "$pid_file"
  unmount_all
  rm -rf "$dir" || { sleep 1; unmount_all; rm -rf "$dir"; }
}

up() {
  [ ${#dir} -le 70 ] || skip "the path $dir is too long for the sockets in it"
  [ "$(id -u)" -eq 0 ] || skip "not started by root"
  command -v podman > /dev/null || skip "podman is not installed (scripts/install-deps.sh --tests)"
  if ! { runs "$pid_file" && answers "$socket"; }; then
    remove
    mkdir -p -m 0711 "$dir" "$dir/net"
    # Its own default is more than a root without CAP_SYS_RESOURCE may have.
    echo "[containers]
default_ulimits = [\"nofile=$(ulimit -Hn):$(ulimit -Hn)\", \"nproc=4096:4096\"]" > "$dir/containers.conf"
    export CONTAINERS_CONF=$dir/containers.conf TMPDIR=$dir  # it forgets to remove what it imported
    setsid podman "${options[@]}" system service --time 0 "unix://$socket" > "$dir/log" 2>&1 < /dev/null &
    echo $! > "$pid_file"
    disown
    if ! wait_until_it_answers "$pid_file"; then
      local why
      why=$(tail -n 1 "$dir/log")
      remove
      skip "podman does not start here: $why"
    fi
  fi
  import small
  echo "unix://$socket"
}

case ${1:-} in
  up) up ;;
  down) remove ;;
  *) echo "usage: podman.sh up [DIR] | down [DIR]" >&2; exit 2 ;;
esac
