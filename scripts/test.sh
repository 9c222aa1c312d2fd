#!/usr/bin/env bash
# Installs what is missing, builds, runs every test, and closes with ctest's count.
#
#   scripts/test.sh             the dev preset: debug, assertions
#   scripts/test.sh asan|tsan   the same tests under a sanitizer
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-dev}
./scripts/install-deps.sh --tests
build "$preset" -DISOGATE_BENCH=OFF
say "tests ($preset)"
ctest --preset "$preset" --output-on-failure
