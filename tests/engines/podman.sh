#!/usr/bin/env bash
# podman's copy of the Engine API for the tests, from Debian's packages alone.
#
#   podman.sh up [DIR]        starts one in DIR, imports isogate-test:small (busybox) and isogate-test:base (Debian with
#                             python3 and git), prints where it listens: unix:///path
#   podman.sh rootless [DIR]  the same, started by an ordinary user (65534)
#   podman.sh down [DIR]      ends it, with all that is its own
#
# Exits with 77 where there can be none, with the reason on stderr. It has no network but `none`.
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

# Whoever is to be podman's user runs it with these words in front.
inside=()
as=(env "CONTAINERS_CONF=$dir/containers.conf" "TMPDIR=$dir")  # it forgets to remove what it imported
if [ "${1:-}" = rootless ] || [ -e "$dir/rootless" ]; then
  as=(setpriv --reuid "$ordinary_user" --regid "$ordinary_user" --clear-groups env -i "PATH=$PATH" "HOME=$dir"
    "XDG_RUNTIME_DIR=$dir/xdg" "${as[@]:1}")
  options+=(--storage-driver overlay)
  # Its uids inside are written where this mount namespace alone sees it.
  inside=(unshare --mount --propagation private bash -c 'mkdir -p subids/etc subids/work
    echo "nobody:1000000:65536" | tee subids/etc/subuid > subids/etc/subgid
    mount -t overlay overlay -o lowerdir=/etc,upperdir=subids/etc,workdir=subids/work /etc && exec "$@"' bash)
fi

# What keeps a rootless one's user namespace: its environment tells whose it is.
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
  # Its child in the user namespace may outlive it; both are of a session of their own.
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
  # What the backend looks for where no image is named.
  ask GET /images/isogate-sandbox:latest/json > /dev/null 2>&1 ||
    ask POST "/images/isogate-test:base/tag?repo=isogate-sandbox&tag=latest" > /dev/null
  echo "unix://$socket"
}

case ${1:-} in
  up | rootless) up "$1" ;;
  down) remove ;;
  *) echo "usage: podman.sh up [DIR] | rootless [DIR] | down [DIR]" >&2; exit 2 ;;
esac
