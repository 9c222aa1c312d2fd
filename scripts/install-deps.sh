#!/usr/bin/env bash
# Installs the packages that isogate needs on Debian 12 or 13, with --tests also those of its tests, with --conformance
# those of sdk/conformance/run.sh alone, and creates the system users that a gateway started by root needs. Installs only
# what is missing; may be run again.
set -euo pipefail

# package | why
# a/b: the first of them that this Debian has; a/-: left out if it has none.
build_packages="
ca-certificates      | HTTPS to package mirrors, the Docker Engine and Kubernetes
ccache               | a second build in seconds
cmake                | the build
curl                 | talking to a gateway by hand; the examples use it
g++                  | C++20
git                  | the source
libboost1.81-dev/libboost1.83-dev | Asio and Beast (the listener), DLL (the plugin loader)
libcli11-dev         | the command line
libpoco-dev          | outbound HTTP and WebSocket, SQLite for state
libseccomp-dev       | system call filters
libspdlog-dev        | the log
libssl-dev           | TLS and hashes
libvalijson-dev      | JSON Schema of plugin configurations
libyaml-cpp-dev      | configuration files
ninja-build          | the build
nlohmann-json3-dev   | JSON
pkg-config           | finds libseccomp
prometheus-cpp-dev   | metrics
zlib1g-dev           | uploads that come packed
"

test_packages="
acct                 | proof from the kernel that nothing ran on this host
bash-completion      | completions of the command line are tried in bash,
fish                 | … in fish,
zsh                  | … and in zsh
busybox-static       | the small image of the Docker tests
chromium             | what web pages may do to a gateway on loopback, in a real browser
clang-14/-           | fuzz targets
clang-format-14/-    | the format of the source
clang-tidy-14/-      | static checks
containerd           | containers of the Kubernetes node
containernetworking-plugins | networks of its pods
cpio                 | the files of the guest that qemu runs
debootstrap          | the image of the Docker tests in which agents find what they use
dpkg-dev             | unpacks the source of Kubernetes
docker-compose       | starts the deployment of compose
docker-cli/-         | its command line, where it is a package of its own
docker.io            | a Docker Engine to run containers on
e2fsprogs            | file systems of a sandbox's own, and disks that fail
etcd-server          | the store of the Kubernetes API server
golang-1.19-go/golang-go | builds Kubernetes and helm
iproute2             | ss and ip: sockets and network namespaces as others see them
iptables             | networks of the Docker Engine
jq                   | JSON in shell tests
libcap2-bin          | capsh: capabilities as others see them
libclang-rt-14-dev/- | libFuzzer and the sanitizers of clang
libgmock-dev         | the unit tests
libgtest-dev         | the unit tests
man-db               | the manual page is rendered
nginx-light          | a proxy in front that must see the same requests; the baseline of file throughput
openssl              | certificates of the TLS tests, and a client that picks at the handshake
podman               | the other engine that speaks the Engine API
procps               | ps: what is left of a tree of processes
python3              | TLS clients and the pages of the browser tests
python3-pip          | builds the wheel of the client for Python
python3-setuptools   | builds it, too
python3-wheel        | builds it, too
python3-jsonschema   | the published schema against the sample configurations
python3-venv         | schemathesis and SDKs, which Debian has not, in an environment of its own
qemu-system-x86      | a guest of Debian's own kernel, whose cgroups are v2 alone; without KVM
python3-yaml         | reads the sample configurations and the OpenAPI document
runc                 | the runtime of the Kubernetes node
runsc                | gVisor, another runtime of the Docker Engine
sqlite3              | looks into the state database
strace               | which system calls a role really makes
systemd              | the installed service is used in the guest; nothing of it runs on this machine
uidmap               | an engine of an ordinary user
util-linux           | setpriv, unshare, prlimit
wget                 | what an agent's image may have in the place of curl
wrk                  | HTTP load
xfsprogs             | a file system with project quotas, in the guest
"

# package of PyPI | why
python_packages="
schemathesis==4.32.5 | requests made up from the OpenAPI document
"

# Where node and npm are not on the PATH, and are new enough: package | why
node_packages="
nodejs               | runs E2B's SDK for JavaScript
npm                  | installs it
"

# directory | package of PyPI, or of npm if the directory begins with npm- | why. Each needs its own versions,
# and so its own directory.
sdks="
e2b-2.63.0           | e2b==2.63.0 | E2B's SDK, the newest: it uses a gateway of each backend
e2b-2.7.0            | e2b==2.7.0 | the oldest that is served
e2b-code-interpreter-2.11.5 | e2b-code-interpreter==2.11.5 e2b==2.63.0 | E2B's SDK for code, which calls a port
langchain-e2b-0.0.6  | langchain-e2b==0.0.6 e2b==2.63.0 | agents of LangChain, whose sandboxes are E2B's
openai-agents-0.24.0 | openai-agents[e2b]==0.24.0 | agents of OpenAI's framework, with an SDK between those
npm-e2b-2.51.0       | e2b@2.51.0 | E2B's SDK for JavaScript, the newest
npm-e2b-2.7.0        | e2b@2.7.0 | the oldest that is served
mcp-2.3.0            | mcp==2.3.0 | the official MCP package of Python
npm-mcp-client-2.4.0 | @modelcontextprotocol/client@2.4.0 | that of JavaScript
npm-mcp-sdk-1.32.2   | @modelcontextprotocol/sdk@1.32.2 | the one before it, which most hosts have
npm-mcp-conformance  | @modelcontextprotocol/conformance@0.2.0-alpha.12 node@22 | MCP's own suite, with the Node that it needs
npm-node-22          | node@22.23.3 npm@10.9.9 | Node and npm that need no library of this machine, for sandboxes whose image has none
isogate-client-1     | httpx==0.28.1 pytest==9.2.0 jsonschema==4.26.0 trio==0.35.0 mypy==2.4.1 | the client for Python, and its tests
inspect-ai-0.3.285   | inspect-ai==0.3.285 pytest==9.2.0 | inspect_ai, with its checks of sandboxes
deepagents-0.7.32    | deepagents==0.7.32 langchain-tests==1.1.9 | deepagents, with LangChain's checks of sandboxes
deepagents-0.6.12    | deepagents==0.6.12 langchain-tests==1.1.9 | the newest with the contract that those checks have
npm-isogate-client-1 | openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3 @types/node@20.19.43 | the client for TypeScript
"

# user | why
system_users="
isogate              | the front, which meets the network, becomes this user
isogate-host         | backend hosts that need no root become this user
"

usage() {
  echo "usage: $0 [--tests] [--conformance]"
  echo "  --tests        also what the tests and benchmarks need"
  echo "  --conformance  also what sdk/conformance/run.sh needs"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

may_be_root() {
  [ "$(id -u)" -eq 0 ] || command -v sudo > /dev/null
}

installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null || true)" = installed ]
}

# Of a/b the one that is installed, else the first that apt knows, else a; of a/- nothing if apt does not know
# a.
choice() {
  local each known='Candidate: [^(]'
  for each in ${1//\// }; do
    if installed "$each"; then echo "$each"; return; fi
  done
  for each in ${1//\// }; do
    if [ "$each" = - ] || [[ $(LC_ALL=C apt-cache policy "$each" 2> /dev/null) =~ $known ]]; then
      echo "${each#-}"
      return
    fi
  done
  echo "${1%%/*}"
}

# Prints the missing rows of a table, one "name|reason" per line.
missing_of() {
  local name reason
  while IFS='|' read -r name reason; do
    name=${name//[[:space:]]/}
    [ -n "$name" ] || continue
    name=$(choice "$name")
    [ -z "$name" ] || installed "$name" || echo "$name|$reason"
  done <<< "$1"
}

install_packages() {
  local missing names
  missing=$(missing_of "$1")
  if [ -z "$missing" ]; then
    echo "$2: all there"
    return
  fi
  # If apt does not know a package, its lists are absent or old.
  mapfile -t names < <(cut -d'|' -f1 <<< "$missing")
  if may_be_root && ! apt-get install --simulate -qq "${names[@]}" > /dev/null 2>&1; then
    quietly as_root apt-get update -q
    missing=$(missing_of "$1")
    mapfile -t names < <(cut -d'|' -f1 <<< "$missing")
  fi
  echo "$2: installing, which may take a minute"
  while IFS='|' read -r name reason; do printf '  %-20s %s\n' "$name" "${reason# }"; done <<< "$missing"
  may_be_root || { echo "run this as root, or install sudo" >&2; exit 1; }
  # RUNLEVEL=1 keeps the services that come with a package from being started.
  quietly as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -q -o Dpkg::Use-Pty=0 --no-install-recommends "${names[@]}"
}

# Shows the output of a command only if it fails, and then also keeps it in a file.
quietly() {
  local log code=0
  log=$(mktemp "${TMPDIR:-/tmp}/isogate-install.XXXXXX")
  "$@" > "$log" 2>&1 < /dev/null || code=$?
  if [ "$code" = 0 ]; then
    rm -f "$log"
    return
  fi
  tail -n 40 "$log" >&2
  echo "that failed with exit code $code; its output is in $log" >&2
  return "$code"
}

make_users() {
  local name reason
  while IFS='|' read -r name reason; do
    name=${name//[[:space:]]/}
    [ -n "$name" ] || continue
    if getent passwd "$name" > /dev/null; then
      echo "user $name: there"
    elif may_be_root; then
      echo "user $name: making it:$reason"
      as_root useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin --user-group "$name"
    else
      echo "user $name: left out, only root can create it (a gateway started by an ordinary user needs none)"
    fi
  done <<< "$system_users"
}

# Outside the tree and separate from any other Python: ~/.cache/isogate-venv, or $ISOGATE_VENV.
install_python() {
  local venv=${ISOGATE_VENV:-$HOME/.cache/isogate-venv} name reason
  # pip comes last: without it, an earlier run was interrupted.
  [ -x "$venv/bin/python" ] && [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  while IFS='|' read -r name reason; do
    name=${name//[[:space:]]/}
    [ -n "$name" ] || continue
    if "$venv/bin/pip" freeze --disable-pip-version-check | grep -qix "$name"; then continue; fi
    echo "python: installing $name into $venv:$reason"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$name" ||
      echo "python: $name could not be installed; its tests will be skipped" >&2
  done <<< "$python_packages"
}

# None of them runs on the node of Debian 12.
install_node() {
  if command -v npm > /dev/null; then return; fi
  if [[ $(LC_ALL=C apt-cache policy nodejs 2> /dev/null) =~ Candidate:\ ([2-9][0-9]) ]]; then
    install_packages "$node_packages" "node"
  else
    echo "node: no npm, and this Debian's is older than 20; tests of SDKs for JavaScript will be skipped"
  fi
}

# Below ~/.cache/isogate-sdks, or $ISOGATE_SDKS.
install_sdks() {
  local all=${ISOGATE_SDKS:-$HOME/.cache/isogate-sdks} name packages reason
  while IFS='|' read -r name packages reason; do
    name=${name//[[:space:]]/}
    [ -n "$name" ] && [ ! -d "$all/$name" ] || continue
    echo "sdk: installing $name into $all:$reason"
    rm -rf "$all/.new"
    mkdir -p "$all/.new"
    # $packages may be several words.
    case $name in
      npm-*) npm install --silent --fetch-retries 1 --fetch-timeout 30000 --no-audit --no-fund \
               --prefix "$all/.new" $packages > /dev/null ;;
      *) "${ISOGATE_VENV:-$HOME/.cache/isogate-venv}/bin/pip" install --quiet --retries 1 --disable-pip-version-check \
           --target "$all/.new" $packages ;;
    esac < /dev/null && mv "$all/.new" "$all/$name" ||
      echo "sdk: $name could not be installed; its tests will be skipped" >&2
  done <<< "$sdks"
  rm -rf "$all/.new"
}

tests=no conformance=no
for argument in "$@"; do
  case $argument in
    --tests) tests=yes ;;
    --conformance) conformance=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

command -v dpkg-query > /dev/null || { echo "this script knows only Debian and its derivatives; see the lists in it" >&2; exit 1; }
install_packages "$build_packages" "build and run"
if [ "$conformance" = yes ]; then
  install_packages "$(grep -E '^(libgmock-dev|libgtest-dev|python3) ' <<< "$test_packages")" "conformance"
fi
if [ "$tests" = yes ]; then
  install_packages "$test_packages" "tests"
  install_python
  install_node
  install_sdks
fi
make_users
