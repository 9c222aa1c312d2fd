#!/usr/bin/env bash
# Runs fuzz targets of the preset `fuzz`, each for SECONDS, from the kept corpus; new inputs go to
# build/fuzz/corpus/<name>, findings to build/fuzz/findings.
#
#   tests/fuzz/run.sh SECONDS [name…]        tests/fuzz/run.sh --keep [name…]   merges new inputs into the corpus
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/fuzz
what=${1:?seconds, or --keep}
shift
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do names+=("$(basename "$source" .cc)"); done
fi
for name in "${names[@]}"; do
  new=$build/corpus/$name kept=tests/fuzz/corpus/$name
  mkdir -p "$new" "$kept" "$build/findings"
  if [ "$what" = --keep ]; then
    "$build/bin/$name" -merge=1 -use_counters=0 -max_len=1024 "$kept" "$new" 2>&1 | grep -E "MERGE-OUTER.*new" || true
    continue
  fi
  printf '%s: ' "$name"
  "$build/bin/$name" -max_total_time="$what" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name-" "$new" "$kept" > "$build/findings/$name.log" 2>&1 ||
    { tail -40 "$build/findings/$name.log"; exit 1; }
  grep -oE "number_of_executed_units: [0-9]+" "$build/findings/$name.log"
done
