#!/usr/bin/env bash
# Containers, networks and volumes of the backend docker that no sandbox claims: what a lost state directory
# leaves on the Engine. Lists them, and removes them when asked to, naming the instance once more.
#
# An orphan carries the labels of that instance and backend and a sandbox that has no directory in the state
# directory. Anything else is left alone. The state directory has to be the gateway's own: by any other
# one all its sandboxes are orphans. It is read before each removal, so the gateway may run meanwhile.
set -euo pipefail

usage() {
  cat >&2 <<'TEXT'
usage: docker-orphans.sh ls --instance NAME [--state-dir DIR] [--backend NAME]
       docker-orphans.sh rm --instance NAME --confirm NAME [--running] [--state-dir DIR] [--backend NAME]

  --instance   `instance` of the gateway's configuration
  --confirm    the same once more; without it nothing is removed
  --running    also containers that run; else they stay, with their networks and volumes
  --state-dir  /var/lib/isogate
  --backend    the backend's name, docker
The Engine is the one of the program docker: DOCKER_HOST, or its context.
TEXT
  exit 2
}

fail() {
  echo "docker-orphans.sh: $1" >&2
  exit 1
}

verb=${1:-}
[ "$verb" = ls ] || [ "$verb" = rm ] || usage
shift
instance='' confirm='' running='' state=/var/lib/isogate backend=docker
while [ $# -gt 0 ]; do
  case $1 in
    --running) running=yes && shift && continue ;;
    --instance | --confirm | --state-dir | --backend) [ $# -gt 1 ] || usage ;;
    *) usage ;;
  esac
  case $1 in
    --instance) instance=$2 ;;
    --confirm) confirm=$2 ;;
    --state-dir) state=$2 ;;
    --backend) backend=$2 ;;
  esac
  shift 2
done
[ -n "$instance" ] && [ -n "$backend" ] || usage
[ -d "$state/sandboxes" ] && [ -r "$state/sandboxes" ] && [ -x "$state/sandboxes" ] ||
  fail "cannot read $state/sandboxes: name the gateway's state directory, as its user"

# The ids that are in use. Those made ahead come first: they are renamed to the other place, never back.
claimed() {
  local place directory
  for place in "$state"/sandboxes/ready.*/ "$state"/sandboxes/; do
    [ -d "$place" ] || continue
    [ -r "$place" ] && [ -x "$place" ] || return 1
    for directory in "$place"*/; do
      [ -d "$directory" ] || continue
      basename "$directory" || return 1
      [ -x "$directory" ] || return 1
      [ ! -e "$directory/made_as" ] || { cat "$directory/made_as" && echo; } || return 1
    done
  done
}

is_claimed() {
  local ids
  ids=$(claimed) || fail "cannot read $state/sandboxes"
  grep -qxF -- "$1" <<<"$ids"
}

filters=(--filter "label=io.isogate.instance=$instance" --filter "label=io.isogate.backend=$backend")
labels='{{.Label "io.isogate.sandbox"}} {{.Label "io.isogate.instance"}} {{.Label "io.isogate.backend"}}'

# kind, id, state, then the labels; containers first, which keep the rest in use.
labelled() {
  docker ps --all --no-trunc "${filters[@]}" --format "container {{.ID}} {{.State}} $labels"
  docker network ls --no-trunc "${filters[@]}" --format "network {{.ID}} - $labels"
  docker volume ls "${filters[@]}" --format "volume {{.Name}} - $labels"
}

orphans() {
  local all kind id is sandbox its_instance its_backend
  all=$(labelled) || fail "the Engine does not tell what it has"
  while read -r kind id is sandbox its_instance its_backend; do
    [[ $sandbox =~ ^isg-[a-z2-7]{26}$ ]] || continue
    [ "$its_instance" = "$instance" ] && [ "$its_backend" = "$backend" ] || continue
    if ! is_claimed "$sandbox"; then echo "$kind $id $is $sandbox"; fi
  done <<<"$all"
}

found=$(orphans) || exit 1
if [ "$verb" = ls ]; then
  [ -z "$found" ] || printf '%s\n' "$found"
  exit 0
fi
[ "$confirm" = "$instance" ] ||
  fail "nothing is removed: repeat the instance's name as --confirm $instance, after a look at \`ls\`"

failed=0
kept=' '
while read -r kind id is sandbox; do
  [ -n "$kind" ] || continue
  if [ "$kind" = container ] && [ -z "$running" ] && [[ $is != @(created|exited|dead) ]]; then
    echo "stays: $kind $id of $sandbox runs; --running removes it, too" >&2
    kept="$kept$sandbox "
  fi
  [[ $kept != *" $sandbox "* ]] || continue
  if is_claimed "$sandbox"; then continue; fi
  case $kind in
    container) remove=(docker rm --force --volumes) ;;
    network) remove=(docker network rm) ;;
    volume) remove=(docker volume rm) ;;
  esac
  # Volumes without a name go with their container.
  if "${remove[@]}" "$id" >/dev/null 2>&1 || { [ "$kind" = volume ] && ! docker volume inspect "$id" >/dev/null 2>&1; }; then
    echo "removed: $kind $id of $sandbox"
  else
    echo "cannot remove: $kind $id of $sandbox" >&2
    failed=1
  fi
done <<<"$found"
exit $failed
