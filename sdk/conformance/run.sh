#!/usr/bin/env bash
# Runs the contract's table of cases against a backend of yours: the same table that every backend of isogate must pass.
#
#   sdk/conformance/run.sh PLUGIN.so [--config MEMBERS] [--case PATTERN] [--user] [--list]
#
#   --config MEMBERS   the backend's `config`, as members in YAML's flow style: 'url: "tcp://127.0.0.1:1", zone: eu'
#   --case PATTERN     only cases whose name matches, with * for any part of it: '*watch*'
#   --user             for root: an ordinary user, nobody, starts the gateway; the clone is where all users can reach it
#   --list             prints the names of the cases
#
# Each case talks over HTTP to a gateway that has this backend alone; root starts that gateway as root. A case that needs
# a capability which the backend does not claim is skipped, and says so. Exits with 0 if every other case passes. It
# builds in this clone, which must belong to whoever runs it.
set -euo pipefail
from=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

usage() {
  sed -n '2,/^set /{/^#/s/^# \?//p}' "$root_dir/sdk/conformance/run.sh" >&"$1"
  exit "$2"
}
wrong() {
  printf '%s\n\n' "$1" >&2
  usage 2 2
}
plugin= config= pattern='*' list= starter=root
[ "$(id -u)" = 0 ] || starter=user
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage 1 0 ;;
    --list) list=yes ;;
    --user) starter=user ;;
    --config | --case)
      [ $# -gt 1 ] || wrong "$1 needs a value"
      if [ "$1" = --config ]; then config=$2; else pattern=$2; fi
      shift
      ;;
    -*) wrong "there is no option $1" ;;
    *)
      [ -z "$plugin" ] || wrong "one plugin at a time"
      plugin=$(cd "$from" && realpath -e "$1")
      ;;
  esac
  shift
done
[ -n "$plugin" ] || wrong "which plugin?"
if [ ! -w . ]; then
  echo "$PWD belongs to somebody else: use a clone of your own (or root's option --user)" >&2
  exit 1
fi
as_starter=()
if [ "$starter$(id -u)" = user0 ]; then
  if ! others_reach; then
    echo "the user nobody cannot reach $root_dir: --user needs a clone elsewhere, such as below /opt" >&2
    exit 1
  fi
  as_starter=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
fi

./scripts/install-deps.sh --conformance
build dev -DISOGATE_BENCH=OFF -- contract_test
export ISOGATE_TEST_PLUGIN=$plugin ISOGATE_SLOW_TESTS=1
[ -z "$config" ] || export ISOGATE_TEST_CONFIG=$config
if [ -n "$list" ]; then
  build/dev/bin/contract_test --gtest_list_tests | sed -n "s|^ *Holds/${starter}_theirs_\([^ ]*\).*|\1|p"
  exit
fi

# What is wrong with the file, the configuration or this host is said once, not by every case. Of a copy: root's gateway
# takes no file of another user's, and nobody's none that only root can read.
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
mkdir -m 755 "$reports/conformance" "$reports/probe"
install -m 755 "$plugin" "$reports/probe/theirs.so"
export ISOGATE_TEST_PLUGIN=$reports/probe/theirs.so
build/dev/bin/isogate plugin describe "$ISOGATE_TEST_PLUGIN"
printf 'allow_unisolated: true\nstate_dir: %s\nbackends: [{name: theirs, plugin: %s, config: {%s}}]\n' \
  "$reports/probe/state" "$ISOGATE_TEST_PLUGIN" "$config" > "$reports/probe/isogate.yaml"
say "probing"
if [ "$starter$(id -u)" = user0 ]; then
  chmod 711 "$reports"
  chown -R nobody "$reports/probe"
fi
${as_starter[@]+"${as_starter[@]}"} build/dev/bin/isogate probe --config "$reports/probe/isogate.yaml"

failed=0
GTEST_OUTPUT=xml:$reports/conformance/ tests/alone.sh build/dev/bin/contract_test --gtest_brief=1 \
  --gtest_filter="*${starter}_theirs_$pattern" || failed=1
say "skipped"
: > "$reports/log"
python3 tests/reports.py skipped "$reports" "$reports/log"
say "failed"
python3 tests/reports.py failed "$reports" "$reports/log"
counts=$(python3 tests/reports.py counts "$reports") || failed=1
say "$counts"
exit "$failed"
