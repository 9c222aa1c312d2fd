# Sourced by kubernetes.sh: what differs between the versions of Kubernetes.

# For $version: its programs in $bin, and their arguments.
choose_version() {
  local builder
  case $version in
    1.20)
      builder=build.sh
      # It ignores the namespaces' labels.
      admits_by=policies admission=NodeRestriction,PodSecurityPolicy
      no_ports=(--port 0 --secure-port 0)
      runtime=(--container-runtime remote)
      kubelet_settings=
      ;;
    1.34)
      builder=current.sh
      # Pod Security, by the namespaces' labels, is always on.
      admits_by=labels admission=NodeRestriction
      no_ports=(--secure-port 0)
      runtime=()
      kubelet_settings="failCgroupV1: false"
      ;;
    *) skip "there is no Kubernetes $version here: 1.20 or 1.34" ;;
  esac
  bin=$("$here/kubernetes/$builder") || skip "there are no programs of Kubernetes"
}
