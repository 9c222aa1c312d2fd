#!/usr/bin/env bash
# Writes the files that are generated from the tree: after a change of docs/openapi.yaml, of a setting or of the command
# line. The tests compare them with the tree.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

new=$(mktemp)
trap 'rm -f "$new"' EXIT
# into FILE COMMAND…: a command that fails leaves the file unchanged.
into() {
  local file=$1
  shift
  "$@" > "$new"
  cmp -s "$new" "$file" || { cat "$new" > "$file" && echo "$file"; }
}

into docs/openapi.json python3 docs/openapi_json.py
build dev -- isogate
isogate=build/dev/bin/isogate
into configs/isogate.schema.json "$isogate" config schema
into docs/configuration.md "$isogate" config docs
into docs/isogate.1 "$isogate" man
into docs/completions/isogate.bash "$isogate" completion bash
into docs/completions/_isogate "$isogate" completion zsh
into docs/completions/isogate.fish "$isogate" completion fish
