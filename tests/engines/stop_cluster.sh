#!/usr/bin/env bash
# stop_cluster.sh NAME: stops a cluster that scripts/test.sh started for this run, and no other.
set -euo pipefail
dir=${ISOGATE_TEST_ENGINES:-}/$1
if [ -z "${ISOGATE_TEST_ENGINES:-}" ] || [ ! -d "$dir" ]; then
  echo "$1: it was not started by scripts/test.sh, and keeps running"
  exit
fi
exec "$(dirname "${BASH_SOURCE[0]}")/kubernetes.sh" down "$dir"
