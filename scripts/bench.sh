#!/usr/bin/env bash
# Builds for release and measures: every figure is a ratio to a baseline of the same run.
#
#   scripts/bench.sh [name…]                  all benches, or those named: see bench/README.md
#   scripts/bench.sh alternation [option…]    bench/alternation.py with these options
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

./scripts/install-deps.sh --tests
build release -DISOGATE_TESTS=OFF -DISOGATE_BENCH=ON
if [ "${1:-}" = alternation ]; then
  exec python3 bench/alternation.py build/release "${@:2}"
fi
exec python3 bench/run.py --build build/release "$@"
