#!/usr/bin/env bash
# Installs what is missing, builds, runs every test, and closes with ctest's count.
#
#   scripts/test.sh             the dev preset: debug, assertions
#   scripts/test.sh asan|tsan   the same tests under a sanitizer
#
# An engine that does not start fails the run, unless ISOGATE_WITHOUT leaves it out by name, of: docker, podman, rootless,
# k8s (a current Kubernetes), k8s-oldest (the oldest that is supported), agents (its controller of agents.x-k8s.io).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-dev}

# Some tests run as an ordinary user, who must reach the build. A clone that only root can read (in /root) is
# therefore also mounted at another path while the tests run.
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

# Real engines, in a separate directory. An engine whose address is in the environment is used
# unchanged.
cluster_build= sanitizer_build= failed=0 unserved=
engines=$(mktemp -d /var/tmp/isogate-engines.XXXXXX)
chmod 0711 "$engines"
export ISOGATE_TEST_ENGINES=$engines
stop_engines() {
  local build
  for build in $cluster_build $sanitizer_build; do
    ! kill -- "-$build" 2> /dev/null || wait "$build" || true
  done
  for kind in docker podman rootless; do
    local script=${kind/rootless/podman}
    tests/engines/$script.sh down "$engines/$kind" || true
  done
  for kind in k8s k8s-oldest; do tests/engines/kubernetes.sh down "$engines/$kind" || true; done
  rm -rf "$engines/reports" "$engines"/*.log
  rmdir "$engines"
  rm -f "$engines".{said,suites}
}
trap stop_engines EXIT
without=${ISOGATE_WITHOUT:-}
left_out() { [[ ",$without," == *",$1,"* ]]; }
did_not_start() {
  echo "$1: it did not start, which fails this run; ISOGATE_WITHOUT=$1 leaves its tests out"
  unserved+=" $1"
  failed=1
}
# start_engine VARIABLE SCRIPT VERB NAME
start_engine() {
  local variable=$1 name=$4 address
  if left_out "$name"; then
    unset "$variable"
    echo "$name: left out"
  elif [ -n "${!variable:-}" ]; then
    echo "$name: ${!variable}, unchanged"
  elif address=$("tests/engines/$2.sh" "$3" "$engines/$name"); then
    export "$variable=$address"
    echo "$name: $address"
  else
    did_not_start "$name"
  fi
}
for name in ${without//,/ }; do
  [[ $name =~ ^(docker|podman|rootless|k8s|k8s-oldest|agents)$ ]] || {
    echo "ISOGATE_WITHOUT: there is no engine \`$name\`: docker, podman, rootless, k8s, k8s-oldest, agents" >&2
    exit 2
  }
done
say "engines"
start_engine ISOGATE_TEST_DOCKER docker up docker
start_engine ISOGATE_TEST_PODMAN podman up podman
start_engine ISOGATE_TEST_PODMAN_ROOTLESS podman rootless rootless

said=$engines.said broken=
: > "$engines.suites"
# Of every run of a suite; also of those that run as an ordinary user.
reports=$engines/reports
mkdir -m 1777 "$reports"
export GTEST_OUTPUT=xml:$reports/
# run_tests PRESET OPTION…: also keeps the output of ctest, for the count at the end. Most suites wait more
# than they compute: four run at a time, or eight of those that mostly wait (WAITS in cmake/isogate.cmake).
run_tests() {
  local preset=$1 log=build/$1/Testing/Temporary/LastTest.log
  shift
  rm -f "$log"*
  ctest --preset "$preset" --output-on-failure --parallel "${ISOGATE_TEST_PARALLEL:-8}" "$@" |
    tee -a "$said" || failed=1
  # Until ctest ends, its log has another name; one that was killed leaves it so.
  [ -e "$log" ] || { broken+=" $preset" && failed=1; }
  cat "$log"* >> "$engines.suites" 2> /dev/null || true
}

# beside COMMAND…: in a separate session, which yields to the tests. A session has its share of the processors
# whatever the niceness of its processes: that share is lowered, too, if the kernel has one.
beside() {
  exec setsid nice -n 19 bash -c '{ echo 19 > /proc/self/autogroup; } 2> /dev/null || true
    exec "$@"' beside "$@"
}
start_clusters() {
  say "clusters"
  start_engine ISOGATE_TEST_KUBERNETES kubernetes up k8s
  ISOGATE_TEST_KUBERNETES_VERSION=$oldest start_engine ISOGATE_TEST_KUBERNETES_OLDEST kubernetes up k8s-oldest
  if [ -n "${ISOGATE_TEST_KUBERNETES:-}" ] && ! left_out agents; then
    local code=0
    tests/engines/kubernetes/agents.sh > /dev/null || code=$?
    [ "$code" = 0 ] || { [ "$code" = 77 ] && [ -n "${CI:-}" ]; } || did_not_start agents  # 77: too long for CI
  fi
}

# Builds that take minutes if they are not cached yet, while tests wait.
oldest=1.20 versions=
left_out k8s || [ -n "${ISOGATE_TEST_KUBERNETES:-}" ] || versions+=" ${ISOGATE_TEST_KUBERNETES_VERSION:-1.34}"
left_out k8s-oldest || [ -n "${ISOGATE_TEST_KUBERNETES_OLDEST:-}" ] || versions+=" $oldest"
if [ -n "$versions" ] && ! tests/engines/kubernetes.sh built $versions > /dev/null 2>&1; then
  beside tests/engines/kubernetes.sh build $versions > "$engines/kubernetes.log" 2>&1 &
  cluster_build=$!
fi
if [ "$preset" = dev ]; then
  beside bash -c '. scripts/common.sh; build asan -- sanitized; build tsan -- sanitized' > "$engines/sanitizers.log" 2>&1 &
  sanitizer_build=$!
fi

# At the same time as all others, or after them if Kubernetes is being built.
if [ -z "$cluster_build" ]; then
  start_clusters
  say "tests ($preset)"
  run_tests "$preset"
else
  say "tests ($preset)"
  run_tests "$preset" --label-exclude cluster
  wait "$cluster_build" || cat "$engines/kubernetes.log"
  cluster_build=
  start_clusters
  run_tests "$preset" --label-regex cluster
fi

# The suites that compute and need no engine, under the sanitizers.
if [ "$preset" = dev ]; then
  wait "$sanitizer_build" || true  # builds what is missing now, and shows the output
  sanitizer_build=
  for sanitizer in asan tsan; do
    build "$sanitizer" -- sanitized
    say "tests ($sanitizer)"
    run_tests "$sanitizer" --label-regex sanitized
  done
fi

say "skipped"
python3 tests/reports.py skipped "$reports" "$engines.suites"

say "failed"
python3 tests/reports.py failed "$reports" "$said"

say "all parts together"
[ -z "$unserved" ] || echo "did not start:$unserved"
[ -z "$broken" ] || echo "ctest did not end, and not all suites were run:$broken"
sed -nE 's/^ *([0-9]+\/[0-9]+)? *Test +#[0-9]+: ([^ ]+) \.*\*\*\*(Failed|Timeout|Exception).*/\2 (\3)/p' "$said" | sort -u |
  sed 's/^/failed: /'
sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$said" |
  awk '{ failed += $1; all += $2 } END { printf "%d suites passed, %d failed out of %d\n", all - failed, failed, all }'
exit "$failed"
