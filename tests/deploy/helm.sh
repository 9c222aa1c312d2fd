#!/usr/bin/env bash
# Prints the path of helm, for the tests of the chart: built once from its module, kept in ~/.cache/isogate-helm or
# $ISOGATE_HELM_CACHE. Exits with 77 if it cannot be built, with the reason on stderr.
set -euo pipefail
version=v3.12.3 # the last for Go 1.19
cache=${ISOGATE_HELM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-helm}
go_root=/usr/lib/go-1.19
program=$cache/helm-$version

skip() {
  echo "helm.sh: $*" >&2
  exit 77
}

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
if [ ! -x "$program" ]; then
  [ -z "${CI:-}" ] || [ -n "${ISOGATE_TEST_LONG:-}" ] ||
    skip "to build helm takes minutes, and CI is set: ISOGATE_TEST_LONG=1 builds it, once"
  [ -x "$go_root/bin/go" ] || skip "golang-1.19-go is not installed (apt-get install golang-1.19-go)"
  echo "helm.sh: building helm $version, some minutes, once" >&2
  work=$(mktemp -d "$cache/work.XXXXXX")
  # What Go downloads is read-only.
  trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
  unset GOROOT GOFLAGS GOBIN
  export GOPATH=$work/go GOCACHE=$work/gocache TMPDIR=$work CGO_ENABLED=0
  timeout 1200 "$go_root/bin/go" install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@$version" \
    > "$cache/log" 2>&1 9>&- || skip "helm cannot be built: $(tail -n 1 "$cache/log")"
  mv "$work/go/bin/helm" "$program"
fi
echo "$program"
