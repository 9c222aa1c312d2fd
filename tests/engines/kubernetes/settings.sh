# Sourced by kubernetes.sh: the certificates, tokens and files of settings of a new cluster, made once.

openssl_req() { openssl req -config "$dir/pki/openssl.conf" -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@"; }

# certify NAME SUBJECT [alternative names]
certify() {
  openssl_req -x509 -CA "$dir/pki/ca.crt" -CAkey "$dir/pki/ca.key" -days 365 -subj "$2" -keyout "$dir/pki/$1.key" \
    -out "$dir/pki/$1.crt" -addext 'basicConstraints=critical,CA:FALSE' \
    -addext 'extendedKeyUsage=serverAuth,clientAuth' ${3:+-addext "subjectAltName=$3"} 2> /dev/null
}

make_certificates() {
  mkdir -m 0700 "$dir/pki"
  printf '[req]\ndistinguished_name = none\n[none]\n' > "$dir/pki/openssl.conf"
  openssl_req -x509 -days 365 -subj "/CN=isogate-test" -keyout "$dir/pki/ca.key" -out "$dir/pki/ca.crt" \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign' 2> /dev/null
  certify etcd /CN=etcd IP:127.0.0.1
  certify apiserver /O=system:masters/CN=kube-apiserver \
    "IP:127.0.0.1,IP:10.232.0.1,IP:$net.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
  certify kubelet /CN=kubelet "IP:$net.1,DNS:$node"
  certify admin /O=system:masters/CN=admin
  openssl genrsa -out "$dir/pki/service-accounts.key" 2048 2> /dev/null
}

# kubeconfig FILE NAMESPACE TOKEN
kubeconfig() {
  cat > "$dir/$1" << END
apiVersion: v1
kind: Config
current-context: isogate-test
contexts:
- name: isogate-test
  context: {cluster: isogate-test, user: isogate-test, namespace: $2}
clusters:
- name: isogate-test
  cluster:
    server: https://127.0.0.1:$api_port
    certificate-authority-data: $(base64 -w 0 "$dir/pki/ca.crt")
users:
- name: isogate-test
  user:
    token: $3
END
}

# The tokens of the file: the name of the part, the user, the group.
make_tokens() {
  local part user group token
  while read -r part user group; do
    token=$(openssl rand -hex 16)
    echo "$token,$user,$part,\"$group\"" >> "$dir/tokens"
    kubeconfig "kubeconfig-$part" default "$token"
  done << END
admin admin system:masters
kube-controller-manager system:kube-controller-manager
kube-scheduler system:kube-scheduler
kubelet system:node:$node system:nodes
END
  mv "$dir/kubeconfig-admin" "$dir/kubeconfig"
  sed -n 's/^\([^,]*\),admin,.*/Authorization: Bearer \1/p' "$dir/tokens" > "$dir/authorization"
}

configure_containerd() {
  cat > "$dir/containerd.toml" << END
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "isogate-test:pause"
# Without CAP_SYS_RESOURCE no process can be made less likely to be killed.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$dir/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other]
runtime_type = "io.containerd.runc.v2"
END
  mkdir "$dir/cni"
  cat > "$dir/cni/pods.conflist" << END
{"cniVersion": "0.4.0", "name": "$bridge", "plugins": [{"type": "bridge", "bridge": "$bridge", "ipam":
  {"type": "host-local", "ranges": [[{"subnet": "$net.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
}

# A full disk of this machine evicts no pod and collects no image: no image could be pulled again.
configure_kubelet() {
  cp /etc/resolv.conf "$dir/resolv.conf"
  cat > "$dir/kubelet.yaml" << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $net.1
port: $kubelet_port
healthzPort: 0
tlsCertFile: $dir/pki/kubelet.crt
tlsPrivateKeyFile: $dir/pki/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$bridge
failSwapOn: false
oomScoreAdj: 0
maxPods: 200
podPidsLimit: 1024
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 1m
kubeAPIQPS: 50
kubeAPIBurst: 100
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
resolvConf: $dir/resolv.conf
volumePluginDir: $dir/volume-plugins
$kubelet_settings
END
}
