# Sourced by kubernetes.sh: its calls of the API, without kubectl.

# kube METHOD PATH [curl option…]
kube() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail --noproxy '*' --max-time 30 --cacert "$dir/pki/ca.crt" \
    --header "@$dir/authorization" --request "$method" "$@" "https://127.0.0.1:$api_port$path"
}

# create PATH < YAML: unless it exists.
create() {
  local code
  code=$(kube POST "$1" --no-fail --header 'Content-Type: application/yaml' --data-binary @- --output "$dir/answer" \
    --write-out '%{http_code}') || give_up kube-apiserver
  case $code in
    20? | 409) ;;
    *) note "POST $1: $(jq -r .message "$dir/answer")"; give_up kube-apiserver ;;
  esac
}

# Which pods are admitted: for the administrator all, for the product's account none that could become root on the node.
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

# The collection of an object: collection KIND NAMESPACE
collection() {
  local space=${2:+namespaces/$2/}
  case $1 in
    Namespace) echo /api/v1/namespaces ;;
    ServiceAccount) echo "/api/v1/${space}serviceaccounts" ;;
    Role) echo "/apis/rbac.authorization.k8s.io/v1/${space}roles" ;;
    RoleBinding) echo "/apis/rbac.authorization.k8s.io/v1/${space}rolebindings" ;;
    NetworkPolicy) echo "/apis/networking.k8s.io/v1/${space}networkpolicies" ;;
    *) note "what is a $1?"; return 1 ;;
  esac
}

# apply FILE: documents in block style, one after the other.
apply() {
  local document kind space
  rm -rf "$dir/documents"
  mkdir "$dir/documents"
  awk -v to="$dir/documents/" 'BEGIN { n = 100 } /^---$/ { n++; next } { print > (to n) }' "$1"
  for document in "$dir"/documents/*; do
    kind=$(sed -n 's/^kind: //p' "$document")
    space=$(awk '/^[a-z]/ { inside = /^metadata:/ } inside && $1 == "namespace:" { print $2 }' "$document")
    create "$(collection "$kind" "$space")" < "$document"
  done
}

# The product's account, with the role that is shipped for it.
create_account() {
  apply "$here/../../deploy/k8s/rbac.yaml"
  apply "$here/../../deploy/k8s/rbac-makers.yaml"
  [ "$admits_by" = policies ] || return 0
  create /apis/rbac.authorization.k8s.io/v1/namespaces/isogate-sandboxes/rolebindings << END
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: isogate-test-restricted}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: isogate-test-restricted}
subjects:
- {kind: ServiceAccount, name: isogate, namespace: isogate}
# For the pods that controllers create there.
- {kind: ServiceAccount, name: default, namespace: isogate-sandboxes}
END
}

create_objects() {
  [ "$admits_by" != policies ] || create_policies
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
  (umask 077 && kubeconfig kubeconfig-isogate isogate-sandboxes "$token")
}

node_is_ready() {
  kube GET "/api/v1/nodes/$node" | jq -e '.status.conditions[] | select(.type == "Ready") | .status == "True"' &&
    kube GET "/api/v1/nodes/$node" | jq -e '.spec.taints == null'
}

# The output of a pod has passed through every part: scheduler, kubelet, containerd, runc, network, and back.
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

# A claim with a file, for what is shared by all sandboxes.
create_shared() {
  create /api/v1/namespaces/isogate-sandboxes/persistentvolumeclaims << 'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: isogate-test-shared}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Mi}}}
END
  create /api/v1/namespaces/isogate-sandboxes/pods << 'END'
apiVersion: v1
kind: Pod
metadata: {name: isogate-test-shared}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: "isogate-test:small"
    imagePullPolicy: Never
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    command: [sh, -c, "echo shared hello > /shared/hello"]
    volumeMounts: [{name: shared, mountPath: /shared}]
  volumes: [{name: shared, persistentVolumeClaim: {claimName: isogate-test-shared}}]
END
}
shared_pod=/api/v1/namespaces/isogate-sandboxes/pods/isogate-test-shared
shared_is_filled() { kube GET $shared_pod | jq -e '.status.phase == "Succeeded"'; }

fill_shared() {
  create_shared
  await 240 kubelet shared_is_filled
  kube DELETE "$shared_pod?gracePeriodSeconds=0" > /dev/null
}

# After the API server was away, a part looks for pods again up to a minute later, and three do so in turn.
try_pod() {
  kube DELETE "$pod/isogate-test?gracePeriodSeconds=0" > /dev/null 2>&1 || true
  await 240 kubelet pod_is_gone
  # Not before the namespace has its service account.
  await 120 kube-controller-manager create_pod
  await 240 kubelet eval "kube GET $pod/isogate-test/log | grep -x 'it works'"
  kube DELETE "$pod/isogate-test?gracePeriodSeconds=0" > /dev/null
}
