#!/usr/bin/env bash
# Runs the contract's table of cases against a backend of yours: the same table that every backend of isogate must pass.
#
#   sdk/conformance/run.sh PLUGIN.so [--config MEMBERS] [--case PATTERN] [--list]
#
#   --config MEMBERS   the backend's `config`, as members in YAML's flow style: 'url: "tcp://127.0.0.1:1", zone: eu'
#   --case PATTERN     only cases whose name matches, with * for any part of it: '*watch*'
#   --list             prints the names of the cases
#
# Each case talks over HTTP to a gateway that has this backend alone; root starts that gateway as root. A case that needs
# a capability which the backend does not claim is skipped, and says so. Exits with 0 if every other case passes.
set -euo pipefail
from=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

usage() {
  sed -n '2,/^set /{/^#/s/^# \?//p}' "$root_dir/sdk/conformance/run.sh" >&"$1"
  exit "$2"
}
plugin= config= pattern='*' list=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage 1 0 ;;
    --list) list=yes ;;
    --config | --case)
      [ $# -gt 1 ] || usage 2 2
      if [ "$1" = --config ]; then config=$2; else pattern=$2; fi
      shift
      ;;
    -*) usage 2 2 ;;
    *)
      [ -z "$plugin" ] || usage 2 2
      plugin=$(cd "$from" && realpath -e "$1")
      ;;
  esac
  shift
done
[ -n "$plugin" ] || usage 2 2

./scripts/install-deps.sh --conformance
build dev -DISOGATE_BENCH=OFF -- contract_test
export ISOGATE_TEST_PLUGIN=$plugin
[ -z "$config" ] || export ISOGATE_TEST_CONFIG=$config
starter=user
[ "$(id -u)" != 0 ] || starter=root
if [ -n "$list" ]; then
  build/dev/bin/contract_test --gtest_list_tests | sed -n "s|^ *Holds/${starter}_theirs_\([^ ]*\).*|\1|p"
  exit
fi

# What is wrong with the file is said once, not by every case.
build/dev/bin/isogate plugin describe "$plugin"
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
mkdir "$reports/conformance"
failed=0
GTEST_OUTPUT=xml:$reports/conformance/ tests/alone.sh build/dev/bin/contract_test \
  --gtest_filter="*${starter}_theirs_$pattern" || failed=1
say "skipped"
: > "$reports/log"
python3 tests/reports.py skipped "$reports" "$reports/log"
say "failed"
python3 tests/reports.py failed "$reports" "$reports/log"
exit "$failed"
