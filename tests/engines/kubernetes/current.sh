#!/usr/bin/env bash
# Prints the directory of a current Kubernetes' programs, for kubernetes.sh: from the Go module k8s.io/kubernetes, with
# Go 1.26 or newer, built once and kept beside those of 1.20.
set -euo pipefail
name=kubernetes.sh
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
. "$here/../common.sh"

programs=${ISOGATE_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-kubernetes}
version=1.34.2
# Raise it when what is built, or how, changes.
kept=$programs/current/$version-r2

# The module's own go.mod, except for its neighbours in the repository: those are modules, too, of its version.
fetch_source() {
  cp -r "$("$go" mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$work/source"
  chmod -R u+w "$work/source"
  cd "$work/source"
  sed -i "s|^\(\t\(k8s.io/[a-z-]*\) => \)\./staging/src/.*|\1\2 v0.${version#1.}|" go.mod
}

# Only root may write to a volume made for a claim, and fsGroup does not change that for this kind: here everybody may.
open_volumes() { sed -i 's/\(MkdirAll(pv.Spec.HostPath.Path, \)0750)/\10777)/' pkg/volume/hostpath/host_path.go; }

compile() {
  local flags="-s -w" variable program
  for variable in gitMajor=1 gitMinor=34 "gitVersion=v$version" gitTreeState=archive; do
    flags+=" -X k8s.io/component-base/version.$variable -X k8s.io/client-go/pkg/version.$variable"
  done
  mkdir -p "$work/out" cmd/isogate-test
  cp "$here/current/main.go" cmd/isogate-test/
  nice -n 19 "$go" build -p 2 -mod=mod -trimpath -ldflags "$flags" -o "$work/out/kubernetes" ./cmd/isogate-test
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
    ln -s kubernetes "$work/out/$program"
  done
  cc -Os -static -s -o "$work/out/pause" build/pause/linux/pause.c
}

finish() {
  local code=$?
  [ "$code" = 0 ] || tail -n 3 "$programs/current.log" >&2
  rm -rf "$work"
}

mkdir -p "$programs/current"
exec 9> "$programs/current.lock"
flock 9
if [ ! -d "$kept" ]; then
  [ "${ISOGATE_KUBERNETES_BUILD:-yes}" = yes ] || skip "Kubernetes $version is not built yet"
  go=$(find_go) || skip "there is no Go 1.26 or newer for Kubernetes $version"
  note "building Kubernetes $version, about 6 minutes of two processors, once"
  work=$(mktemp -d "$programs/work.XXXXXX")
  trap finish EXIT
  export GOPATH=$work/go GOCACHE=$work/gocache TMPDIR=$work GOFLAGS=-modcacherw GOENV=off GOWORK=off CGO_ENABLED=0
  unset GOROOT GOBIN
  {
    fetch_source
    open_volumes
    compile
    mv "$work/out" "$kept"
  } > "$programs/current.log" 2>&1 9>&-
fi
echo "$kept"
