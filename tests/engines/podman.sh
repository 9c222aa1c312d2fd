#!/usr/bin/env bash
# podman's implementation of the Engine API for the tests, from Debian's packages only.
#
#   podman.sh up [DIR]        starts one in DIR, imports isogate-test:small (busybox) and isogate-test:base (Debian with
#                             python3 and git), prints where it listens: unix:///path
#   podman.sh rootless [DIR]  the same, started by an ordinary user (65534)
#   podman.sh down [DIR]      ends it and removes everything that belongs to it
#
# Exits with 77 if none can run, with the reason on stderr. It has no network but `none`.
set -euo pipefail
name=podman.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dir=$(realpath -m "${2:-/var/tmp/isogate-podman-$(id -u)}")
socket=$dir/podman.sock
pid_file=$dir/podman.pid
ordinary_user=65534

# crun refuses machines with both kinds of cgroups.
options=(--root "$dir/root" --runroot "$dir/run" --tmpdir "$dir/tmp" --runtime runc --cgroup-manager cgroupfs
  --events-backend file --network-config-dir "$dir/net")

# The command prefix that runs podman as its user.
inside=()
as=(env "CONTAINERS_CONF=$dir/containers.conf" "TMPDIR=$dir")  # it forgets to remove what it imported
if [ "${1:-}" = rootless ] || [ -e "$dir/rootless" ]; then
  as=(setpriv --reuid "$ordinary_user" --regid "$ordinary_user" --clear-groups env -i "PATH=$PATH" "HOME=$dir"
    "XDG_RUNTIME_DIR=$dir/xdg" "${as[@]:1}")
  options+=(--storage-driver overlay)
  # Its uids inside are written where only this mount namespace sees it.
  inside=(unshare --mount --propagation private bash -c 'mkdir -p subids/etc subids/work
    echo "nobody:1000000:65536" | tee subids/etc/subuid > subids/etc/subgid
    mount -t overlay overlay -o lowerdir=/etc,upperdir=subids/etc,workdir=subids/work /etc && exec "$@"' bash)
fi

# The process that keeps a rootless one's user namespace; its environment shows whose it is.
end_pause() {
  local pid
  pid=$(cat "$dir/tmp/pause.pid" 2> /dev/null) || return 0
  if grep -qsaF "HOME=$dir" "/proc/$pid/environ"; then kill "$pid" || true; fi
}

remove() {
  [ -d "$dir" ] || return 0
  [ -z "$(ls -A "$dir")" ] || [ -e "$dir/log" ] || skip "$dir is not of an Engine of the tests"
  (cd "$dir" && timeout 30 "${as[@]}" podman "${options[@]}" rm --all --force --time 0 > /dev/null 2>&1) || true
  local pid
  pid=$(cat "$pid_file" 2> /dev/null) || pid=
  end "$pid_file"
  # Its child in the user namespace may outlive it; both have their own session.
  [ -z "$pid" ] || kill -KILL -- "-$pid" 2> /dev/null || true
  end_pause
  unmount_all
  rm -rf "$dir" || { sleep 1; unmount_all; rm -rf "$dir"; }
}

start() {
  mkdir -p -m 0711 "$dir" "$dir/net" "$dir/xdg"
  # Its own default is more than a root without CAP_SYS_RESOURCE may have; and an ordinary user may have 200 keys, which
  # many containers that come and go use up.
  echo "[containers]
default_ulimits = [\"nofile=$(ulimit -Hn):$(ulimit -Hn)\", \"nproc=4096:4096\"]
keyring = false" > "$dir/containers.conf"
  touch "$dir/log"
  if [ "$1" = rootless ]; then
    command -v newuidmap > /dev/null || skip "newuidmap is not installed (scripts/install-deps.sh --tests)"
    touch "$dir/rootless"
    chown -R "$ordinary_user:$ordinary_user" "$dir"
  fi
  (
    cd "$dir"
    exec setsid "${inside[@]}" "${as[@]}" podman "${options[@]}" system service --time 0 "unix://$socket" > log 2>&1 < /dev/null
  ) &
  echo $! > "$pid_file"
  disown
  if ! wait_until_it_answers "$pid_file"; then
    local why
    why=$(tail -n 1 "$dir/log")
    remove
    skip "podman does not start here: $why"
  fi
}

up() {
  [ ${#dir} -le 70 ] || skip "the path $dir is too long for the sockets in it"
  [ "$(id -u)" -eq 0 ] || skip "not started by root"
  command -v podman > /dev/null || skip "podman is not installed (scripts/install-deps.sh --tests)"
  if ! { runs "$pid_file" && answers "$socket"; }; then
    remove
    start "$1"
  fi
  import small
  import base
  # The image that the backend uses by default.
  ask GET /images/isogate-sandbox:latest/json > /dev/null 2>&1 ||
    ask POST "/images/isogate-test:base/tag?repo=isogate-sandbox&tag=latest" > /dev/null
  echo "unix://$socket"
}

case ${1:-} in
  up | rootless) up "$1" ;;
  down) remove ;;
  *) echo "usage: podman.sh up [DIR] | rootless [DIR] | down [DIR]" >&2; exit 2 ;;
esac
