"""The tests' cluster (tests/engines/kubernetes.sh) with the gateway's image on its node, and what its pods do not have: a route to the
API server."""

import os
import re
import socket
import subprocess
import sys
import threading
import time

import yaml

from manifests import ROOT

IMAGE = "isogate-test:gateway"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **{"timeout": 120, **options})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


class Relay:
    """TCP from an address that pods reach to one of this machine's own."""

    def __init__(self, host, target):
        self.target, self.door = target, socket.create_server((host, 0))
        self.port = self.door.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            peer = self.door.accept()[0]
            try:
                ahead = socket.create_connection(self.target)
            except OSError:  # it tries again
                peer.close()
                continue
            threading.Thread(target=self.relay, args=(peer, ahead), daemon=True).start()

    def relay(self, peer, ahead):
        with peer, ahead:
            back = threading.Thread(target=self.copy, args=(ahead, peer), daemon=True)
            back.start()
            self.copy(peer, ahead)
            back.join()

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has gone
            pass


class Cluster:
    def __init__(self, build):
        self.kubeconfig = os.environ.get("ISOGATE_TEST_KUBERNETES", "")
        if not self.kubeconfig:
            print("skipped: ISOGATE_TEST_KUBERNETES names no kubeconfig: tests/engines/kubernetes.sh up prints one")
            sys.exit(77)
        self.build, self.directory = build, os.path.dirname(self.kubeconfig)
        engines = os.path.join(ROOT, "tests", "engines")
        with open(os.path.join(self.directory, "settings")) as file:
            settings = dict(re.findall(r'^(\w+)="(.*)"$', file.read(), re.M))
        self.old = settings["version"] == "1.20"
        self.program = os.path.join(run(f"{engines}/kubernetes.sh", "build", settings["version"], timeout=900), "kubectl")
        self.api = Relay(settings["net"] + ".1", ("127.0.0.1", int(settings["api_port"])))
        self.api_host = settings["net"] + ".1"
        self.runner_image = run(f"{engines}/kubernetes.sh", "runner", self.directory, f"{build}/bin/isogate-runner")

    def import_gateway(self, work):
        archive = os.path.join(work, "gateway.tar")
        run(os.path.join(ROOT, "deploy", "image", "build.sh"), "--tag", "docker.io/library/" + IMAGE, "--archive", archive,
            self.build)
        run("ctr", "--address", f"{self.directory}/containerd.sock", "--namespace", "k8s.io", "images", "import", archive)

    def kubectl(self, *arguments, **options):
        return run(self.program, "--kubeconfig", self.kubeconfig, *arguments, **options)

    def apply(self, text):
        return self.kubectl("apply", "-f", "-", input=text)

    def of_pods(self, namespace, path, *options):
        return self.kubectl("-n", namespace, "get", "pods", "-o", f"jsonpath={path}", *options)

    def await_no_pods(self, namespace, selector):
        """A kubelet that missed the end of a pod's containers looks again within 90 s."""
        until = time.monotonic() + 180
        while left := self.of_pods(namespace, "{.items[*].metadata.name}", "-l", selector):
            if time.monotonic() > until:
                raise AssertionError(f"pods are left: {left}")
            time.sleep(0.5)

    def await_rollout(self, namespace, what):
        """Ready, or the last lines of its pods' logs are in the error."""
        try:
            self.kubectl("-n", namespace, "rollout", "status", what, "--timeout", "180s", timeout=200)
        except AssertionError as late:
            logs = self.kubectl("-n", namespace, "logs", what, "--all-containers", "--tail", "20")
            raise AssertionError(f"{late}\n{logs}") from late

    def api_environment(self):
        """Where the service account's credentials are to be used: this cluster has no services."""
        return [{"name": "KUBERNETES_SERVICE_HOST", "value": self.api_host},
                {"name": "KUBERNETES_SERVICE_PORT", "value": str(self.api.port)}]

    def admit(self, namespace, account):
        """What an old cluster's own admission wants: the policy that forbids what can be forbidden."""
        if not self.old:
            return
        self.apply(yaml.safe_dump({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "isogate-test-restricted", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "isogate-test-restricted"},
            "subjects": [{"kind": "ServiceAccount", "name": "isogate", "namespace": account}]}))
