# Sourced by kubernetes.sh: what it asks of the API, without kubectl.

# kube METHOD PATH [curl option…]
kube() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail --noproxy '*' --max-time 30 --cacert "$dir/pki/ca.crt" \
    --header "@$dir/authorization" --request "$method" "$@" "https://127.0.0.1:$api_port$path"
}

# create PATH < YAML: unless it is there.
create() {
  local code
  code=$(kube POST "$1" --no-fail --header 'Content-Type: application/yaml' --data-binary @- --output "$dir/answer" \
    --write-out '%{http_code}') || give_up kube-apiserver
  case $code in
    20? | 409) ;;
    *) note "POST $1: $(jq -r .message "$dir/answer")"; give_up kube-apiserver ;;
  esac
}

# Which pods may be: all for the administrator, for the product's account none that could become the node's root.
create_policies() {
  create /apis/policy/v1beta1/podsecuritypolicies << 'END'
apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: anything, annotations: {seccomp.security.alpha.kubernetes.io/allowedProfileNames: "*"}}
spec:
  privileged: true
  allowPrivilegeEscalation: true
  allowedCapabilities: ["*"]
  volumes: ["*"]
  hostNetwork: true
  hostPorts: [{min: 0, max: 65535}]
  hostIPC: true
  hostPID: true
  runAsUser: {rule: RunAsAny}
  seLinux: {rule: RunAsAny}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
END
  create /apis/policy/v1beta1/podsecuritypolicies << 'END'
apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: restricted, annotations: {seccomp.security.alpha.kubernetes.io/allowedProfileNames: runtime/default}}
spec:
  privileged: false
  allowPrivilegeEscalation: false
  requiredDropCapabilities: [ALL]
  volumes: [configMap, downwardAPI, emptyDir, persistentVolumeClaim, projected, secret]
  runAsUser: {rule: MustRunAsNonRoot}
  seLinux: {rule: RunAsAny}
  supplementalGroups: {rule: MustRunAs, ranges: [{min: 1, max: 65535}]}
  fsGroup: {rule: MustRunAs, ranges: [{min: 1, max: 65535}]}
END
  local policy
  for policy in anything restricted; do
    create /apis/rbac.authorization.k8s.io/v1/clusterroles << END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: isogate-test-$policy}
rules: [{apiGroups: [policy], resources: [podsecuritypolicies], resourceNames: [$policy], verbs: [use]}]
END
  done
}

create_account() {
  local roles=/apis/rbac.authorization.k8s.io/v1/namespaces/isogate name kind
  create /api/v1/namespaces <<< '{apiVersion: v1, kind: Namespace, metadata: {name: isogate}}'
  create /api/v1/namespaces/isogate/serviceaccounts <<< '{apiVersion: v1, kind: ServiceAccount, metadata: {name: isogate}}'
  create "$roles/roles" << 'END'
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: isogate}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create, get, list, watch, delete]}
- {apiGroups: [""], resources: [pods/exec], verbs: [create, get]}
END
  for name in isogate isogate-test-restricted; do
    kind=ClusterRole
    [ "$name" != isogate ] || kind=Role
    create "$roles/rolebindings" << END
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: $name}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: $kind, name: $name}
subjects: [{kind: ServiceAccount, name: isogate, namespace: isogate}]
END
  done
}

create_objects() {
  create_policies
  create_account
  create /apis/storage.k8s.io/v1/storageclasses << 'END'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: node, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/host-path
END
}

# A token of the account for a day.
write_account_kubeconfig() {
  local token
  token=$(kube POST /api/v1/namespaces/isogate/serviceaccounts/isogate/token --header 'Content-Type: application/json' \
    --data '{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}' |
    jq -er .status.token) || give_up kube-apiserver
  (umask 077 && kubeconfig kubeconfig-isogate isogate "$token")
}

node_is_ready() {
  kube GET "/api/v1/nodes/$node" | jq -e '.status.conditions[] | select(.type == "Ready") | .status == "True"' &&
    kube GET "/api/v1/nodes/$node" | jq -e '.spec.taints == null'
}

# What a pod says has gone through everything there is: scheduler, kubelet, containerd, runc, network, and back.
pod=/api/v1/namespaces/default/pods
create_pod() {
  kube POST $pod --header 'Content-Type: application/yaml' --data-binary @- << 'END'
apiVersion: v1
kind: Pod
metadata: {name: isogate-test}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "isogate-test:small", imagePullPolicy: Never, command: [echo, it works]}]
END
}
pod_is_gone() { ! kube GET $pod/isogate-test; }

try_pod() {
  kube DELETE "$pod/isogate-test?gracePeriodSeconds=0" > /dev/null 2>&1 || true
  await 30 kubelet pod_is_gone
  # Not before the namespace has its service account.
  await 30 kube-controller-manager create_pod
  await 60 kubelet eval "kube GET $pod/isogate-test/log | grep -x 'it works'"
  kube DELETE "$pod/isogate-test?gracePeriodSeconds=0" > /dev/null
}
