#!/usr/bin/env bash
# Prints the directory of the controller of agents.x-k8s.io and its CustomResourceDefinitions, for kubernetes.sh:
# sigs.k8s.io/agent-sandbox from the Go proxy, built once and kept beside Kubernetes' programs.
set -euo pipefail
name=kubernetes.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

programs=${ISOGATE_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-kubernetes}
version=v0.5.6
# Raise it when what is built, or how, changes.
kept=$programs/agents/$version-r3

# The cluster's API server treats an empty string of a custom resource as null: so there is no such default, therefore
# no key of a list, and a condition may have no message.
# Without the controller's webhook an object is the same in all versions.
age() {
  awk '/^  conversion:$/ { converts = 1; next }
    converts && /^   / { next }
    { converts = 0 }
    /default: (""|\047\047)$/ { next }
    /x-kubernetes-list-map-keys:$/ { inside = 1; next }
    inside && /^ *- / { next }
    { inside = 0 }
    /maxLength: 32768$/ { match($0, /m/); printf "%snullable: true\n", substr($0, 1, RSTART - 1) }
    !/x-kubernetes-list-type: map$/' "$1"
}

build() {
  local kind
  cp -r "$("$go" mod download -json "sigs.k8s.io/agent-sandbox@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$work/source"
  chmod -R u+w "$work/source"
  cd "$work/source"
  mkdir "$work/out"
  "$go" build -trimpath -ldflags '-s -w' -o "$work/out/controller" ./cmd/agent-sandbox-controller
  for kind in k8s/crds/*.yaml; do age "$kind" > "$work/out/${kind##*_}"; done
  mv "$work/out" "$kept"
}

finish() {
  local code=$?
  [ "$code" = 0 ] || tail -n 3 "$programs/agents.log" >&2
  rm -rf "$work"
}

mkdir -p "$programs/agents"
exec 9> "$programs/agents.lock"
flock 9
if [ ! -d "$kept" ]; then
  [ -z "${CI:-}" ] || [ -n "${ISOGATE_TEST_LONG:-}" ] ||
    skip "building the controller of agents.x-k8s.io takes minutes, and CI is set: ISOGATE_TEST_LONG=1 builds it, once"
  go=$(find_go) || skip "there is no Go 1.26 or newer for the controller of agents.x-k8s.io"
  note "building the controller of agents.x-k8s.io, about 2 minutes, once"
  work=$(mktemp -d "$programs/work.XXXXXX")
  trap finish EXIT
  export GOPATH=$work/go GOCACHE=$work/gocache GOFLAGS=-modcacherw GOENV=off CGO_ENABLED=0
  build > "$programs/agents.log" 2>&1 9>&-
fi
echo "$kept"
