#!/usr/bin/env bash
# Builds the starter image of the backend `docker` on the Engine that the docker command uses, and prints
# the settings that use it.
#
#   build.sh [--tag NAME] [--packages "…"] [--debootstrap] [--mirror URL]
#
# --debootstrap  creates the root file system with debootstrap (as root) and imports it: no registry is needed
# --mirror       of Debian, for --debootstrap; default: this machine's own, if it runs Debian 12
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tag=isogate-sandbox:latest
packages=$(sed -n 's/^ARG PACKAGES="\(.*\)"$/\1/p' "$here/Dockerfile")
bootstrap=false mirror=

usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case $1 in
    --tag) tag=$2; shift 2 ;;
    --packages) packages=$2; shift 2 ;;
    --mirror) mirror=$2; shift 2 ;;
    --debootstrap) bootstrap=true; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "build.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done

docker version --format '{{.Server.Version}}' >/dev/null 2>&1 || {
  echo "build.sh: no Engine answers: start it, or set DOCKER_HOST" >&2
  exit 1
}

from_registry() { docker build --tag "$tag" --build-arg PACKAGES="$packages" "$here"; }

from_debootstrap() {
  [ "$(id -u)" = 0 ] || { echo "build.sh: --debootstrap needs root" >&2; exit 1; }
  command -v debootstrap >/dev/null || { echo "build.sh: apt-get install debootstrap" >&2; exit 1; }
  if [ -z "$mirror" ] && command -v apt-get >/dev/null; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'CODENAME: bookworm' 'COMPONENT: main' 2>/dev/null | head -n 1)
  fi
  local root
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/isogate-image.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$root'" EXIT
  debootstrap --variant=minbase --include="${packages// /,}" bookworm "$root" ${mirror:+"$mirror"}
  chroot "$root" sh -s < "$here/setup.sh"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/dev/*
  tar -C "$root" --one-file-system --numeric-owner -c . | docker import \
    --change "$(grep '^ENV LANG=' "$here/Dockerfile")" \
    --change "$(grep '^ENV PATH=' "$here/Dockerfile")" \
    --change 'WORKDIR /workspace' --change 'USER 1000:1000' - "$tag"
}

if $bootstrap; then from_debootstrap; else from_registry; fi
size=$(docker image inspect --format '{{.Size}}' "$tag")
cat <<END

Built $tag, $((size / 1000000)) MB. In isogate.yaml:

backends:
  - name: docker
    config:
      image: "$tag"
END
