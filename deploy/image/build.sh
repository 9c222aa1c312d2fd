#!/usr/bin/env bash
# Builds the image of the gateway from a build directory, without a registry and without root, and loads it
# into the Engine that the docker command uses. It has the program, its backends and the libraries that these
# need; no shell.
#
#   build.sh [--tag NAME] [--archive FILE] BUILD_DIR
#
# --archive  writes it to FILE (- is stdout), for docker load, podman load or ctr images import; needs no Engine
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tag=isogate:latest archive='' build=''

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case $1 in
    --tag) tag=$2; shift 2 ;;
    --archive) archive=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "build.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
    *) build=$1; shift ;;
  esac
done
[ -n "$build" ] || { usage >&2; exit 2; }
command -v jq > /dev/null || { echo "build.sh: apt-get install jq" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/var/tmp}/isogate-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$here/rootfs.sh" "$build" "$work/root"

# Everything except the state belongs to root, whoever builds it.
tar --create --numeric-owner --owner 0 --group 0 --sort name --directory "$work/root" --exclude ./var/lib/isogate \
  --file "$work/layer.tar" .
tar --append --numeric-owner --owner 65532 --group 65532 --directory "$work/root" --file "$work/layer.tar" ./var/lib/isogate
jq -n --arg layer "sha256:$(sha256sum < "$work/layer.tar" | cut -d' ' -f1)" --arg machine "$(dpkg --print-architecture)" '{
  architecture: $machine, os: "linux", rootfs: {type: "layers", diff_ids: [$layer]},
  config: {User: "65532:65532", Entrypoint: ["/usr/local/bin/isogate"], Cmd: ["serve"], WorkingDir: "/",
    Env: ["PATH=/usr/local/bin", "ISOGATE_STATE_DIR=/var/lib/isogate/state",
      "ISOGATE_URL=unix:/var/lib/isogate/state/isogate.sock"],
    ExposedPorts: {"9090/tcp": {}}}}' > "$work/config.json"
jq -n --arg tag "$tag" '[{Config: "config.json", RepoTags: [$tag], Layers: ["layer.tar"]}]' > "$work/manifest.json"

pack() { tar --create --directory "$work" manifest.json config.json layer.tar; }
case $archive in
  '') pack | docker load ;;
  -) pack ;;
  *) pack > "$archive" ;;
esac
