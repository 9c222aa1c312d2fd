#!/usr/bin/env bash
# Installs what is missing, builds, runs every test, and closes with ctest's count.
#
#   scripts/test.sh             the dev preset: debug, assertions
#   scripts/test.sh asan|tsan   the same tests under a sanitizer
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-dev}

# Some tests run as an ordinary user, who has to reach what is built. A clone where only root looks (in /root) is
# therefore also mounted at a place of its own, for as long as the tests take.
others_reach() {
  local dir=$root_dir
  while [ "$dir" != / ]; do
    [ $((0$(stat -c %a "$dir") & 1)) -eq 1 ] || return 1
    dir=$(dirname "$dir")
  done
}
if [ "$(id -u)" -eq 0 ] && ! others_reach; then
  place=/opt/isogate-clone
  say "other users cannot reach $root_dir: building and testing it as $place"
  mkdir -p "$place"
  if mountpoint -q "$place"; then umount -l "$place"; fi
  mount --bind "$root_dir" "$place"
  trap 'umount -l "$place"' EXIT
  cd "$place"
  ./scripts/test.sh "$preset"
  exit
fi

./scripts/install-deps.sh --tests
build "$preset" -DISOGATE_BENCH=OFF

# Real engines, in a directory of their own; where one cannot run, its tests are skipped. One whose address is in the
# environment is used as it is.
said= cluster_build=
engines=$(mktemp -d /var/tmp/isogate-engines.XXXXXX)
chmod 0711 "$engines"
stop_engines() {
  [ -z "$cluster_build" ] || ! kill -- "-$cluster_build" 2> /dev/null || wait "$cluster_build" || true
  for kind in docker podman rootless; do
    local script=${kind/rootless/podman}
    tests/engines/$script.sh down "$engines/$kind" || true
  done
  tests/engines/kubernetes.sh down "$engines/k8s" || true
  rm -rf "$engines/reports" "$engines/kubernetes.log"
  rmdir "$engines"
  rm -f "$said"
}
trap stop_engines EXIT
# start_engine VARIABLE SCRIPT VERB DIRECTORY
start_engine() {
  local variable=$1 address
  [ -z "${!variable:-}" ] || return 0
  if address=$("tests/engines/$2.sh" "$3" "$engines/$4"); then
    export "$variable=$address"
    echo "$4: $address"
  else
    echo "$4: its tests are skipped"
  fi
}
say "engines"
start_engine ISOGATE_TEST_DOCKER docker up docker
start_engine ISOGATE_TEST_PODMAN podman up podman
start_engine ISOGATE_TEST_PODMAN_ROOTLESS podman rootless rootless

failed=0
said=$engines.said
# Of every run of a suite; also of those that run as an ordinary user.
reports=$engines/reports
mkdir -m 1777 "$reports"
export GTEST_OUTPUT=xml:$reports/
# run_tests OPTION…: what ctest says is also kept, for the count at the end. Engines and clusters on a loaded machine
# are late at times: a suite that failed is run once more, and named at the end even when it then passes. Most suites
# wait more than they compute: more of them run beside each other than there are processors.
run_tests() {
  ctest --preset "$preset" --output-on-failure --repeat until-pass:2 --parallel "${ISOGATE_TEST_PARALLEL:-3}" "$@" |
    tee -a "$said" || failed=1
}

# Where it is not in its cache yet it is built for minutes, beside the tests that wait.
if [ -z "${ISOGATE_TEST_KUBERNETES:-}" ]; then
  setsid nice -n 19 tests/engines/kubernetes/build.sh > "$engines/kubernetes.log" 2>&1 &
  cluster_build=$!
fi

say "tests ($preset)"
run_tests --label-exclude cluster

# Last and by itself: a cluster takes a quarter of a processor even when it does nothing.
say "a cluster"
[ -z "$cluster_build" ] || wait "$cluster_build" || cat "$engines/kubernetes.log"
cluster_build=
start_engine ISOGATE_TEST_KUBERNETES kubernetes up k8s
if [ -n "${ISOGATE_TEST_KUBERNETES:-}" ]; then
  tests/engines/kubernetes/agents.sh > /dev/null || echo "agents.x-k8s.io: its tests are skipped"
fi
run_tests --label-regex cluster

say "skipped"
python3 tests/skips.py "$reports"

say "both parts together"
sed -nE 's/^ *([0-9]+\/[0-9]+)? *Test +#[0-9]+: ([^ ]+) \.*\*\*\*(Failed|Timeout|Exception).*/\2/p' "$said" | sort -u |
  sed 's/^/failed at least once: /'
sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$said" |
  awk '{ failed += $1; all += $2 } END { printf "%d suites passed, %d failed out of %d\n", all - failed, failed, all }'
exit "$failed"
