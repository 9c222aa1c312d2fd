#!/usr/bin/env bash
# Prints the directory of Kubernetes' programs, for kubernetes.sh: 1.20.2, built once from Debian's source package and
# kept in ~/.cache/isogate-kubernetes, or $ISOGATE_KUBERNETES_CACHE.
set -euo pipefail
name=kubernetes.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

programs=${ISOGATE_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-kubernetes}
# Raise it when what is built, or how, changes.
recipe=1
go_root=/usr/lib/go-1.19

there() {
  local found
  found=$(find "$programs" -mindepth 1 -maxdepth 1 -name "*-r$recipe" | sort -V | tail -n 1)
  [ -n "$found" ] && echo "$found"
}

# apt-get with its own state: the machine's repositories of Debian 12, for source packages.
source_apt() {
  apt-get -q -o "Dir::State=$work/apt" -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" \
    -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o APT::Sandbox::User=root "$@"
}

fetch_source() {
  mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
  apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    awk '$3 ~ /^bookworm/' | sort -u > "$work/apt/sources.list"
  [ -s "$work/apt/sources.list" ] || { echo "apt knows no repository of Debian 12"; return 1; }
  source_apt update
  cd "$work"
  source_apt source kubernetes
  mkdir -p "$GOPATH/src/k8s.io"
  mv kubernetes-*/ "$GOPATH/src/k8s.io/kubernetes"
  cd "$GOPATH/src/k8s.io/kubernetes"
}

# Go 1.18 changed how an iterator of a map is made, which this copy of reflect2 links to: it would crash the API server.
mend_reflect2() {
  local file=vendor/github.com/modern-go/reflect2/unsafe_link.go
  sed -i -e 's/^\(.*\)mapiterinit reflect.mapiterinit$/\1initHiter reflect.mapiterinit/' \
    -e 's/^func mapiterinit.*/func initHiter(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)/' \
    -e 's|^\t// rest fields are ignored|\tpointers [6]unsafe.Pointer\n\tnumbers [4]uintptr|' "$file"
  cat >> "$file" << 'END'

func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter {
	it := new(hiter)
	initHiter(rtype, m, it)
	return it
}
END
}

# Only root may write to a volume made for a claim, and fsGroup does not change that for this kind: here everybody may.
open_volumes() { sed -i 's/\(MkdirAll(pv.Spec.HostPath.Path, \)0750)/\10777)/' pkg/volume/hostpath/host_path.go; }

# What upstream's Makefile generates and the archive lacks: a table of the packages that are tagged for it.
generate_openapi() {
  local packages
  packages=$(grep -rl --include='*.go' '^// +k8s:openapi-gen=' cmd pkg plugin staging/src/k8s.io |
    grep -vE '^staging/src/k8s.io/(code-generator|sample-apiserver)/|/zz_generated|/testdata/' | xargs -n 1 dirname |
    LC_ALL=C sort -u | sed 's|^staging/src/|vendor/|; s|^|k8s.io/kubernetes/|' | paste -sd,)
  go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  "$work/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
    -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"
}

compile() {
  local flags="-s -w" package variable
  for package in client-go/pkg component-base; do
    for variable in gitMajor=1 gitMinor=20 gitVersion=v1.20.2 gitTreeState=archive; do
      flags+=" -X k8s.io/kubernetes/vendor/k8s.io/$package/version.$variable"
    done
  done
  mkdir "$work/out"
  go build -trimpath -ldflags "$flags" -o "$work/out/" \
    ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubelet ./cmd/kubectl
  cc -Os -static -s -o "$work/out/pause" build/pause/linux/pause.c
}

# The directory appears under its final name when it is complete.
keep() {
  mv "$work/out" "$programs/$(dpkg-parsechangelog --file debian/changelog --show-field Version)-r$recipe"
}

finish() {
  local code=$?
  [ "$code" = 0 ] || tail -n 3 "$programs/log" >&2
  rm -rf "$work"
}

mkdir -p "$programs"
exec 9> "$programs/lock"
flock 9
if there; then exit; fi
[ "${ISOGATE_KUBERNETES_BUILD:-yes}" = yes ] || skip "Kubernetes 1.20.2 is not built yet"
[ -x "$go_root/bin/go" ] || skip "golang-1.19-go is not installed (apt-get install etcd-server containerd runc containernetworking-plugins golang-1.19-go dpkg-dev)"
command -v dpkg-source > /dev/null || skip "dpkg-dev is not installed (apt-get install etcd-server containerd runc containernetworking-plugins golang-1.19-go dpkg-dev)"
note "building Kubernetes 1.20.2, about 5 minutes, once"
work=$(mktemp -d "$programs/work.XXXXXX")
trap finish EXIT
unset GOROOT GOFLAGS GOBIN
export PATH=$go_root/bin:$PATH TMPDIR=$work
export GOPATH=$work/go GOCACHE=$work/gocache GO111MODULE=off GOENV=off CGO_ENABLED=0
{
  fetch_source
  mend_reflect2
  open_volumes
  generate_openapi
  compile
  keep
} > "$programs/log" 2>&1 9>&-
there
