#!/usr/bin/env bash
# A Kubernetes cluster of one node for the tests: a current one, from the Go proxy, or 1.20.2, from Debian's packages
# only (ISOGATE_TEST_KUBERNETES_VERSION=1.20 for a new DIR), with Debian's etcd, containerd and runc.
#
#   kubernetes.sh up [DIR]                 starts one in DIR, or the parts that have died, with network policies in force and
#                                          the images isogate-test:small and :base of docker.sh; tries a pod; prints the
#                                          path of the administrator's kubeconfig
#   kubernetes.sh import DIR NAME ARCHIVE  a root file system (tar) as an image of the node
#   kubernetes.sh runner DIR PROGRAM       an isogate-runner as an image of the node; prints its name
#   kubernetes.sh agents DIR               installs agents.x-k8s.io and starts its controller (kubernetes/agents.sh)
#   kubernetes.sh no-policies DIR          stops enforcing network policies: ends the engine and removes its rules
#   kubernetes.sh policies DIR             enforces them again
#   kubernetes.sh build [VERSION…]         builds what `up` needs, and nothing else; prints the directories
#   kubernetes.sh built [VERSION…]         whether that is built: exits with 77 if it is not
#   kubernetes.sh down [DIR]               ends it and removes everything that belongs to it
#
# Exits with 77 if none can run, with the reason on stderr. Pods need imagePullPolicy Never.
# The programs are built by kubernetes/build.sh or kubernetes/current.sh, once.
set -euo pipefail
name=kubernetes.sh
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
. "$here/common.sh"
. "$here/kubernetes/versions.sh"
. "$here/kubernetes/settings.sh"
. "$here/kubernetes/objects.sh"

version=${ISOGATE_TEST_KUBERNETES_VERSION:-1.34}
node=isogate-node
# Killed in this order. Each has a pid file and a log of its name in DIR.
parts="policies agents kubelet containerd kube-scheduler kube-controller-manager kube-apiserver etcd"

choose() {
  dir=$(realpath -m "${1:-/var/tmp/isogate-kubernetes-$(id -u)}")
  [ ${#dir} -le 60 ] || skip "the path $dir is too long for the sockets in it"
  case $dir/ in
    /run/* | /tmp/* | /var/lib/* | /var/log/*) skip "not in $dir: the node has a directory of its own there" ;;
  esac
}

can_run() {
  local program
  [ "$(id -u)" -eq 0 ] || skip "not started by root"
  for program in etcd containerd ctr runc openssl jq ip nsenter python3 iptables-restore ip6tables-restore /usr/lib/cni/bridge; do
    command -v "$program" > /dev/null || skip "$program is not installed (scripts/install-deps.sh --tests)"
  done
}

# ---- what it adds to the machine: a bridge, and the cgroups below one of its name ---------------------------------

# A port of loopback that no outgoing connection may get.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)) && (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done
  echo "$port"
}

# Sets $bridge and $net: 10.231.N is the pods' network, without a route beyond this machine.
make_bridge() {
  local number
  for number in {0..63}; do
    bridge=isgk8s$number net=10.231.$number
    if ip link add "$bridge" address "02:69:73:67:38:$(printf %02x "$number")" type bridge 2> /dev/null; then
      ip address add "$net.1/24" dev "$bridge"
      ip link set "$bridge" up
      between_pods -I 2> /dev/null || true
      return
    fi
  done
  skip "no bridge can be created"
}

# Its cgroup in every hierarchy.
cgroups() {
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo | sort -u |
    sed "s|\$|/$bridge|"
}

make_cgroups() {
  local place file
  for place in $(cgroups); do
    mkdir -p "$place"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$place/$file" ] || cat "$place/../$file" > "$place/$file"
    done
  done
}

# The processes in its cgroups, then their shims.
kill_pods() {
  local place tries what
  for ((tries = 0; tries < 50; tries++)); do
    for place in $(cgroups); do
      [ ! -d "$place" ] || find "$place" -name cgroup.procs -exec cat {} + 2> /dev/null
    done | sort -u > "$dir/pids"
    [ -s "$dir/pids" ] || break
    xargs kill -KILL < "$dir/pids" 2> /dev/null || true
    sleep 0.1
  done
  for place in /proc/[0-9]*; do
    { read -r what < "$place/comm"; } 2> /dev/null && [ "$what" = containerd-shim ] || continue
    ! grep -qsF "$dir/containerd.sock" "$place/cmdline" || kill -KILL "${place#/proc/}" 2> /dev/null || true
  done
}

remove_cgroups() {
  local place
  for place in $(cgroups); do
    [ ! -d "$place" ] || find "$place" -depth -type d -exec rmdir {} + 2> /dev/null || true
  done
}

# A Docker Engine makes the machine drop forwarded packets, also from pod to pod.
between_pods() { iptables --wait "$1" FORWARD -i "$bridge" -o "$bridge" -j ACCEPT; }

remove_bridge() {
  local link
  between_pods -D 2> /dev/null || true
  for link in $(ip -o link show master "$bridge" 2> /dev/null | sed 's/^[0-9]*: \([^@:]*\).*/\1/'); do
    ip link delete "$link" 2> /dev/null || true
  done
  ip link delete "$bridge" 2> /dev/null || true
}

# ---- a new one ---------------------------------------------------------------------------------------------------

prepare() {
  mkdir -p -m 0711 "$dir"
  etcd_port=$(free_port) peer_port=$(free_port) api_port=$(free_port) kubelet_port=$(free_port)
  make_bridge
  declare -p version bridge net etcd_port peer_port api_port kubelet_port | sed 's/^declare -- //' > "$dir/settings"
  make_cgroups
  mkdir "$dir/log"
  (
    umask 077
    make_certificates
    make_tokens
  )
  configure_containerd
  configure_kubelet
}

# ---- processes ---------------------------------------------------------------------------------------------------

# launch PART COMMAND…: in its own session, unless it runs.
launch() {
  local part=$1
  shift
  if runs "$dir/$part.pid"; then return; fi
  setsid "$@" >> "$dir/log/$part" 2>&1 < /dev/null &
  echo $! > "$dir/$part.pid"
  disown
}

# The mount namespace of what runs pods: this machine has none of its mounts, what its programs keep in fixed places is
# in DIR, and the kubelet finds the kernel's settings as it wants them, so that it changes none.
launch_node() {
  mkdir -p "$dir/node"/{run,tmp,var/lib,var/log,kernel}
  chmod 1777 "$dir/node/tmp"
  launch node unshare --mount bash -euc '
    dir=$1
    for place in /run /tmp /var/lib /var/log; do mount --bind "$dir/node$place" "$place"; done
    while read -r setting value; do
      [ -e "/proc/sys/$setting" ] || continue
      echo "$value" > "$dir/node/kernel/${setting##*/}"
      mount --bind "$dir/node/kernel/${setting##*/}" "/proc/sys/$setting"
    done << END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
    touch "$dir/node/ready"
    exec -a "$dir/node" sleep infinity' - "$dir"
  await 10 node test -e "$dir/node/ready"
}

on_node() {
  local part=$1
  shift
  launch "$part" nsenter --target "$(cat "$dir/node.pid")" --mount -- "$@"
}

launch_etcd() {
  local tls=(--cert-file "$dir/pki/etcd.crt" --key-file "$dir/pki/etcd.key" --trusted-ca-file "$dir/pki/ca.crt")
  local here=https://127.0.0.1
  launch etcd etcd --name "$node" --data-dir "$dir/etcd" --client-cert-auth "${tls[@]}" \
    --listen-client-urls "$here:$etcd_port" --advertise-client-urls "$here:$etcd_port" \
    --peer-client-cert-auth "${tls[@]/#--/--peer-}" --listen-peer-urls "$here:$peer_port" \
    --initial-advertise-peer-urls "$here:$peer_port" --initial-cluster "$node=$here:$peer_port" \
    --logger zap --log-level warn
}

etcd_listens() { : < "/dev/tcp/127.0.0.1/$etcd_port"; }

launch_apiserver() {
  local pki=$dir/pki
  launch kube-apiserver "$bin/kube-apiserver" --bind-address 127.0.0.1 --secure-port "$api_port" \
    --advertise-address "$net.1" --service-cluster-ip-range 10.232.0.0/24 \
    --etcd-servers "https://127.0.0.1:$etcd_port" --etcd-cafile "$pki/ca.crt" \
    --etcd-certfile "$pki/apiserver.crt" --etcd-keyfile "$pki/apiserver.key" \
    --cert-dir "$pki" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --client-ca-file "$pki/ca.crt" --token-auth-file "$dir/tokens" --authorization-mode Node,RBAC \
    --enable-admission-plugins "$admission" --allow-privileged \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-signing-key-file "$pki/service-accounts.key" \
    --service-account-key-file "$pki/service-accounts.key" \
    --kubelet-preferred-address-types InternalIP --kubelet-certificate-authority "$pki/ca.crt" \
    --kubelet-client-certificate "$pki/apiserver.crt" --kubelet-client-key "$pki/apiserver.key"
}

# The controller manager makes the volumes of claims, directories in the node's /tmp that every user may write to.
launch_controllers() {
  launch kube-scheduler "$bin/kube-scheduler" --kubeconfig "$dir/kubeconfig-kube-scheduler" --leader-elect=false \
    "${no_ports[@]}"
  (
    umask 0
    on_node kube-controller-manager "$bin/kube-controller-manager" \
      --kubeconfig "$dir/kubeconfig-kube-controller-manager" --leader-elect=false "${no_ports[@]}" \
      --use-service-account-credentials --service-account-private-key-file "$dir/pki/service-accounts.key" \
      --root-ca-file "$dir/pki/ca.crt" --enable-hostpath-provisioner --flex-volume-plugin-dir "$dir/volume-plugins"
  )
}

launch_kubelet() {
  on_node kubelet "$bin/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubeconfig-kubelet" \
    --hostname-override "$node" --node-ip "$net.1" --root-dir "$dir/kubelet" --cert-dir "$dir/pki" \
    "${runtime[@]}" --container-runtime-endpoint "unix://$dir/containerd.sock" --enforce-node-allocatable= \
    --make-iptables-util-chains=false
}

# give_up PART: this is the part that does not work.
give_up() {
  local why
  why=$(grep -aE '^(panic|fatal error):|^[EF][0-9]{4} |"level":"(error|fatal)"|level=(error|fatal)' "$dir/log/$1" |
    tail -n 1 || tail -n 1 "$dir/log/$1")
  remove
  skip "$1 does not do its work here: $why"
}

# await SECONDS PART COMMAND…: until it succeeds; the cluster is given up when it does not, or when the part has died.
await() {
  local from=$SECONDS seconds=$1 part=$2
  shift 2
  until "$@" > /dev/null 2>&1; do
    [ $((SECONDS - from)) -lt "$seconds" ] || give_up "$part"
    [ $((SECONDS - from)) -le 2 ] || runs "$dir/$part.pid" || give_up "$part"
    sleep 0.1
  done
}

# SIGKILL: what it leaves goes with DIR.
halt() {
  local tries
  for ((tries = 0; tries < 50; tries++)); do
    runs "$dir/$1.pid" || return 0
    kill -KILL "$(cat "$dir/$1.pid")" 2> /dev/null || true
    sleep 0.1
  done
}

# ---- images: root file systems, sent as an image of one layer ----------------------------------------------------

containers() { ctr --address "$dir/containerd.sock" --namespace k8s.io "$@"; }

# load ARCHIVE SETTINGS NAME…
load() {
  local archive=$1 settings=$2 work
  shift 2
  work=$(mktemp -d "$dir/image.XXXXXX")
  ln -s "$(realpath "$archive")" "$work/layer.tar"
  jq -n --arg layer "sha256:$(sha256sum < "$archive" | cut -d' ' -f1)" --arg machine "$(dpkg --print-architecture)" \
    --argjson settings "$settings" '{architecture: $machine, os: "linux", config: $settings,
    rootfs: {type: "layers", diff_ids: [$layer]}}' > "$work/config.json"
  jq -n '[{Config: "config.json", RepoTags: $ARGS.positional, Layers: ["layer.tar"]}]' --args "$@" \
    > "$work/manifest.json"
  tar --create --dereference --directory "$work" manifest.json config.json layer.tar | containers images import - > /dev/null
  rm -rf "$work"
}

import_image() {
  local path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  load "$1" "{\"Env\": [\"PATH=$path\"]}" "${@:2}"
}

import_runner() {
  local name archive
  name=isogate-test:runner-$(sha256sum < "$1" | cut -c 1-12)
  if ! containers images list --quiet | grep -qx ".*/$name"; then
    archive=$(mktemp "$dir/runner.XXXXXX")
    tar --create --dereference --file "$archive" --mode 0555 --owner 0 --group 0 --transform 's|.*|isogate-runner|' \
      --directory "$(dirname "$1")" "$(basename "$1")"
    load "$archive" '{}' "$name"
    rm -f "$archive"
  fi
  echo "$name"
}

import_images() {
  local there file
  there=$(containers images list --quiet)
  grep -qx '.*/isogate-test:pause' <<< "$there" || {
    tar --create --file "$dir/pause.tar" --directory "$bin" pause
    load "$dir/pause.tar" '{"Entrypoint": ["/pause"]}' isogate-test:pause
  }
  grep -qx '.*/isogate-test:small' <<< "$there" || {
    file=$(archive_of small) || skip "cannot make the image isogate-test:small"
    import_image "$file" isogate-test:small
  }
  # The image that the backend uses by default is the real one.
  grep -qx '.*/isogate-test:base' <<< "$there" || {
    file=$(archive_of base) || skip "cannot make the image isogate-test:base"
    import_image "$file" isogate-test:base isogate-sandbox:latest
  }
}

# ---- verbs -------------------------------------------------------------------------------------------------------

remove() {
  local part
  [ -d "$dir" ] || return 0
  [ -z "$(ls -A "$dir")" ] || [ -e "$dir/settings" ] || skip "$dir is not of a cluster of the tests"
  if [ -e "$dir/settings" ]; then
    . "$dir/settings"
    for part in $parts; do halt "$part"; done
    kill_pods
    halt node
    unmount_all
    remove_cgroups
    remove_bridge
  fi
  rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
}

up() {
  can_run
  runs "$dir/node.pid" || remove
  [ ! -e "$dir/settings" ] || . "$dir/settings"
  choose_version
  [ -e "$dir/settings" ] || prepare
  launch_node
  on_node containerd containerd --config "$dir/containerd.toml"
  launch_etcd
  await 30 etcd etcd_listens
  launch_apiserver
  await 30 containerd containers version
  import_images > /dev/null &
  local importer=$!
  await 120 kube-apiserver kube GET /readyz
  create_objects
  launch_controllers
  launch_kubelet
  add_policies
  write_account_kubeconfig
  await 240 kubelet node_is_ready
  wait "$importer" || exit
  try_pod
  fill_shared
  echo "$dir/kubeconfig"
}

# serves GROUP_VERSION PLURAL: and lists it, without which a controller does not start.
serves() { kube GET "/apis/$1" | jq -e --arg it "$2" 'any(.resources[]; .name == $it)' > /dev/null; }

# The administrator's controller: it creates the pods of Sandboxes. The tests show what it cannot do.
add_agents() {
  local agents kind
  agents=$("$here/kubernetes/agents.sh") || skip "there is no controller of agents.x-k8s.io"
  . "$dir/settings"
  for kind in "$agents"/*.yaml; do create /apis/apiextensions.k8s.io/v1/customresourcedefinitions < "$kind"; done
  await 20 kube-apiserver serves agents.x-k8s.io/v1beta1 sandboxes
  for kind in sandboxclaims sandboxtemplates sandboxwarmpools; do
    await 20 kube-apiserver serves extensions.agents.x-k8s.io/v1beta1 "$kind"
  done
  launch agents "$agents/controller" --kubeconfig "$dir/kubeconfig" --health-probe-bind-address 0 \
    --metrics-bind-address 0 --leader-elect=false --enable-webhook=false --extensions
}

add_policies() {
  . "$dir/settings"
  runs "$dir/policies.pid" || rm -f "$dir/policies.ready"
  on_node policies python3 "$here/kubernetes/policies.py" "https://127.0.0.1:$api_port" "$dir"
  await 20 policies test -e "$dir/policies.ready"
}

# A killed engine has left rules, which a new one can remove.
remove_policies() {
  [ ! -e "$dir/policies.ready" ] || add_policies
  end "$dir/policies.pid"
  [ ! -e "$dir/policies.ready" ] || { note "not all rules are gone: $(tail -n 1 "$dir/log/policies")"; return 1; }
}

verb=${1:-}
shift || true
case $verb in
  up) choose "${1:-}"; up ;;
  import)
    choose "${1:?DIR}"
    import_image "${3:?ARCHIVE}" "${2:?NAME}"
    ;;
  runner)
    choose "${1:?DIR}"
    import_runner "${2:?PROGRAM}"
    ;;
  agents) choose "${1:?DIR}"; add_agents ;;
  policies) choose "${1:?DIR}"; add_policies ;;
  no-policies) choose "${1:?DIR}"; remove_policies ;;
  build | built)
    [ "$verb" = build ] || export ISOGATE_KUBERNETES_BUILD=no
    for version in "${@:-$version}"; do
      choose_version
      echo "$bin"
    done
    ;;
  down) choose "${1:-}"; remove ;;
  *)
    echo "usage: kubernetes.sh up [DIR] | import DIR NAME ARCHIVE | runner DIR PROGRAM | agents DIR |" >&2
    echo "  policies DIR | no-policies DIR | build [VERSION…] | built [VERSION…] | down [DIR]" >&2
    exit 2
    ;;
esac
