# Shared by the scripts in this folder: sourced, not run.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root_dir"

say() { printf '\n== %s\n' "$*"; }

# The compiler's cache lives outside the tree, so that a fresh clone builds fast.
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-ccache}
export CCACHE_BASEDIR=$root_dir
export CCACHE_COMPILERCHECK=content
export CCACHE_NOHASHDIR=1

# Whether every user can reach this clone, also by way of a symbolic link, which all may follow wherever it leads.
others_reach() {
  local dir
  for dir in "$root_dir" "$(pwd -P)"; do
    while [ "$dir" != / ]; do
      [ $((0$(stat -c %a "$dir") & 1)) -eq 1 ] || return 1
      dir=$(dirname "$dir")
    done
  done
}

# build PRESET [cmake option…] [-- target…]
build() {
  local preset=$1
  shift
  local options=() targets=()
  while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then
      shift
      targets=("$@")
      break
    fi
    options+=("$1")
    shift
  done
  # A clone has two paths where test.sh mounts it at another one, and a build has the path where it was configured: of
  # one that is reached through a symbolic link, that path.
  local cache=build/$preset/CMakeCache.txt at=CMAKE_HOME_DIRECTORY:INTERNAL
  if [ -e "$cache" ] && ! grep -qxF -e "$at=$(pwd -P)" -e "$at=$PWD" "$cache"; then options+=(--fresh); fi
  say "building ($preset): build/$preset"
  local said
  said=$(cmake --preset "$preset" "${options[@]}" 2>&1) || {
    printf '%s\n' "$said"
    return 1
  }
  NINJA_STATUS='[%f/%t %es] ' cmake --build --preset "$preset" ${targets[@]+--target "${targets[@]}"}
}
