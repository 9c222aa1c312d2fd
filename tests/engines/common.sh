# Shared by the scripts in this folder: sourced, not run. $dir is the engine's own directory, $socket its socket.

note() { echo "$name: $*" >&2; }

# The tests are skipped with this line.
skip() {
  note "$*"
  exit 77
}

# Prints the path of Go 1.26 or newer: this machine's, or one that a Go of Debian fetches as a module and verifies, once.
go_fetched=1.26.8
find_go() {
  local go kept=${XDG_CACHE_HOME:-$HOME/.cache}/isogate-go/$go_fetched
  for go in "$(command -v go || true)" /usr/local/go/bin/go "$kept/bin/go"; do
    [ -x "$go" ] && "$go" version | grep -qE 'go1\.(2[6-9]|[3-9])' && echo "$go" && return
  done
  for go in "$(command -v go || true)" /usr/lib/go-*/bin/go; do
    [ -x "$go" ] && fetch_go "$go" "$kept" >&2 && echo "$kept/bin/go" && return
  done
  return 1
}

# fetch_go GO DIRECTORY
fetch_go() (
  set -e
  note "fetching Go $go_fetched, once"
  mkdir -p "$(dirname "$2")"
  work=$(mktemp -d "$2.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  unset GOROOT
  module=golang.org/toolchain@v0.0.1-go$go_fetched.linux-$("$1" env GOARCH)
  (cd "$work" && GOPATH=$work GOFLAGS=-modcacherw GOENV=off GOWORK=off GO111MODULE=on "$1" mod download "$module")
  chmod -R a+x "$work/pkg/mod/$module/bin" "$work/pkg/mod/$module/pkg/tool"
  mv -T "$work/pkg/mod/$module" "$2" || [ -x "$2/bin/go" ]  # another was faster
)

# Programs written in Go collect garbage a quarter as often: there is memory, and there are few processors.
export GOGC=${GOGC:-400}

cache=${ISOGATE_DOCKER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isogate-docker}

# ask METHOD PATH [curl option…]: prints the response's body; fails if the response is no success.
ask() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail --max-time 120 --unix-socket "$socket" --request "$method" "$@" \
    "http://engine$path"
}

answers() { curl --silent --fail --max-time 2 --unix-socket "$1" http://engine/_ping > /dev/null 2>&1; }

# Whether the process of a pid file runs, and belongs to us: its command line names our directory.
runs() {
  local pid
  pid=$(cat "$1" 2> /dev/null) && [ -n "$pid" ] && grep -qsF "$dir" "/proc/$pid/cmdline"
}

# end PIDFILE: SIGTERM, after 15 s SIGKILL.
end() {
  local pid tries
  runs "$1" || return 0
  pid=$(cat "$1")
  kill -CONT "$pid" 2> /dev/null || true
  kill "$pid" 2> /dev/null || true
  for ((tries = 0; tries < 150; tries++)); do
    runs "$1" || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2> /dev/null || true
}

# wait_until_it_answers PIDFILE [PID]: PID is of the process that will write PIDFILE.
wait_until_it_answers() {
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    if answers "$socket"; then return; fi
    runs "$1" || { [ -n "${2:-}" ] && kill -0 "$2" 2> /dev/null; } || [ "$tries" -lt 20 ] || return 1
    sleep 0.1
  done
  return 1
}

unmount_all() {
  local place
  # Later mounts first.
  awk -v dir="$dir/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r place; do
    umount -l "$place" 2> /dev/null || true
  done
}

# ---- images: a tar archive of each root file system, made once and kept in the cache -------------------------

add_users() {
  mkdir -p "$1/etc" "$1/root" "$1/tmp" "$1/workspace" "$1/home/agent"
  grep -qs '^root:' "$1/etc/passwd" || echo 'root:x:0:0:root:/root:/bin/sh' >> "$1/etc/passwd"
  grep -qs '^root:' "$1/etc/group" || echo 'root:x:0:' >> "$1/etc/group"
  echo 'agent:x:1000:1000:agent:/home/agent:/bin/sh' >> "$1/etc/passwd"
  echo 'agent:x:1000:' >> "$1/etc/group"
  chmod 1777 "$1/tmp"
  chown 1000:1000 "$1/workspace" "$1/home/agent"
}

make_small() {
  local applet
  mkdir -p "$1/bin" "$1/proc" "$1/sys" "$1/dev"
  cp "$(command -v busybox)" "$1/bin/busybox"
  for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -s busybox "$1/bin/$applet"; done
}

make_base() {
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'CODENAME: bookworm' 'COMPONENT: main' | head -n 1)
  note "making the image isogate-test:base once, which takes half a minute"
  debootstrap --variant=minbase --include=python3,git,curl bookworm "$1" ${mirror:+"$mirror"} > "$1.log" 2>&1 || {
    tail -n 3 "$1.log" >&2
    return 1
  }
  rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/usr/share/{doc,man,locale,info}/* "$1.log"
}

# Prints the archive of image $1, made if it is missing.
archive_of() {
  local file=$cache/$1-3.tar work
  mkdir -p "$cache"
  (
    flock 9
    [ -s "$file" ] && exit
    work=$(mktemp -d "$cache/work.XXXXXX")
    trap 'rm -rf "$work" "$work.log"' EXIT
    chmod 755 "$work"
    "make_$1" "$work"
    add_users "$work"
    tar --create --numeric-owner --xattrs --sort=name --file "$file.new" --directory "$work" .
    mv "$file.new" "$file"
  ) 9> "$cache/lock" || return 1
  echo "$file"
}

# import IMAGE: as isogate-test:IMAGE, unless the engine has it.
import() {
  local file said
  if ask GET "/images/isogate-test:$1/json" > /dev/null 2>&1; then return; fi
  file=$(archive_of "$1") || skip "cannot make the image isogate-test:$1"
  # An import that fails may be a 200 with an error inside.
  said=$(ask POST "/images/create?fromSrc=-&repo=isogate-test&tag=$1" --header 'Content-Type: application/x-tar' \
    --upload-file "$file") || skip "cannot import the image isogate-test:$1"
  case $said in *'"error"'*) skip "cannot import the image isogate-test:$1: $said" ;; esac
  # podman ignores the tag.
  if ! ask GET "/images/isogate-test:$1/json" > /dev/null 2>&1; then
    ask POST "/images/$(sed -n 's/.*"id":"\([^"]*\)".*/\1/p' <<< "$said")/tag?repo=isogate-test&tag=$1" > /dev/null
  fi
}
