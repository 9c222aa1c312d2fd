#!/bin/sh
# usage: try.sh COMPILER SOURCE_DIR: builds wrong.cc each way, and expects just the first to succeed
set -u
compile() {
  "$1" -std=c++20 -fsyntax-only -I "$2" -I "$2/sdk/include" -DWAY="$3" "$2/tests/runner/site/wrong.cc" 2>&1
}
if ! why=$(compile "$1" "$2" 0); then
  echo "the right way does not compile: $why"
  exit 1
fi
for way in 1 2 3 4 5 6 7 8 9 10; do
  if compile "$1" "$2" "$way" >/dev/null; then
    echo "way $way compiles: a command that does not say where it runs"
    exit 1
  fi
done
