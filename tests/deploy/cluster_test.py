#!/usr/bin/env python3
"""The chart and the sidecar on the tests' cluster: gateways in pods, with the service account that is shipped, and execs through
them. cluster_test.py BUILD_DIR; needs ISOGATE_TEST_KUBERNETES and helm."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import yaml

from cluster import IMAGE, Cluster, run
from manifests import documents, helm, render, shipped

BUILD = ""
NAME = "isogate.isogate"  # of the gateway's certificate


def new_key():
    key, digest = (line.split()[1] for line in run(f"{BUILD}/bin/isogate", "key", "new").splitlines())
    return key, digest


class OnCluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory(prefix="isogate-deploy-", dir="/var/tmp")
        cls.cluster = Cluster(BUILD)
        cls.cluster.import_gateway(cls.work.name)
        cls.cluster.admit_gateway()
        cls.key, cls.digest = new_key()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.kubectl("-n", "isogate-sandboxes", "delete", "leases,pods,pvc", "--now", "-l", "isogate.io/instance=deploy")
        cls.work.cleanup()

    def backend_config(self):
        return {"runner_image": self.cluster.runner_image, "image": "isogate-test:base", "pull_policy": "Never",
                "memory_request_mb": 16, "cpu_request": 0.001, "ephemeral_mb": 256, "workspace_mb": 64,
                "allow_unenforced_network": True}


class WithHelm(OnCluster):
    def setUp(self):
        self.certificate = os.path.join(self.work.name, "tls.crt")
        private = os.path.join(self.work.name, "tls.key")
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=gateway", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", private, "-out", self.certificate)
        self.cluster.kubectl("-n", "isogate", "create", "secret", "tls", "isogate-tls", "--cert", self.certificate,
                             "--key", private)
        keys = json.dumps([{"name": "test", "tenant": "platform", "sha256": self.digest}])
        self.cluster.kubectl("-n", "isogate", "create", "secret", "generic", "callers", f"--from-literal=keys={keys}")

    def tearDown(self):
        self.cluster.kubectl("-n", "isogate", "delete", "--now", "--ignore-not-found",
                             "statefulset/isogate", "service/isogate", "configmap/isogate", "networkpolicy/isogate",
                             "pdb/isogate", "secret/isogate-tls", "secret/callers")
        self.cluster.kubectl("-n", "isogate", "delete", "--now", "pods,pvc", "-l", "app.kubernetes.io/name=isogate")

    def install(self, replicas):
        values = {"replicas": replicas, "instance": "deploy", "keysSecret": {"name": "callers"},
                  "image": {"repository": IMAGE.split(":")[0], "tag": IMAGE.split(":")[1], "pullPolicy": "Never"},
                  "sandboxes": {"egress": "default", "config": self.backend_config()},
                  "resources": {"requests": {"cpu": "1m", "memory": "32Mi"}},
                  "persistence": {"size": "16Mi"}, "env": self.cluster.api_environment()}
        self.cluster.apply(render("--values", "-", stdin=yaml.safe_dump(values), kube_version="1.20.2").stdout)
        try:
            self.cluster.kubectl("-n", "isogate", "rollout", "status", "statefulset/isogate", "--timeout", "60s")
        except AssertionError as late:
            logs = subprocess.run([self.cluster.program, "--kubeconfig", self.cluster.kubeconfig, "-n", "isogate", "logs",
                                   "isogate-0", "--tail", "20"], capture_output=True, text=True)
            raise AssertionError(f"{late}\n{logs.stdout}{logs.stderr}") from late

    def call(self, nth, path, body=None, key=None):
        """One call of replica `nth`, over TLS with the gateway's own name."""
        address = self.cluster.kubectl("-n", "isogate", "get", "pod", f"isogate-{nth}", "-o", "jsonpath={.status.podIP}")
        data = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else []
        return json.loads(run("curl", "-sS", "--noproxy", "*", "--cacert", self.certificate,
                              "--resolve", f"{NAME}:9090:{address}", "-H", f"Authorization: Bearer {key or self.key}", *data,
                              f"https://{NAME}:9090{path}"))

    def command(self, nth, command):
        return self.call(nth, "/exec", {"agent_id": "a", "command": command})

    def sandbox_pods(self):
        return self.cluster.of_pods("isogate-sandboxes", "{.items[*].metadata.uid}", "-l", "isogate.io/instance=deploy")

    def test_gateways_of_the_chart_serve_the_same_agents_and_keep_their_state(self):
        self.install(replicas=1)
        first = self.command(0, "echo hello > note; cat note")
        self.assertEqual((first.get("stdout"), first.get("outcome")), ("hello\n", "exited"), first)
        self.assertEqual((first["backend"], first["isolation"]), ("k8s", "container"))
        pod = self.sandbox_pods()
        self.assertEqual(len(pod.split()), 1)
        self.assertEqual(self.call(0, "/sandboxes", key=new_key()[0])["error"]["code"], "unauthenticated")

        self.install(replicas=2)  # another configuration: the first is replaced, too
        for nth in (0, 1):
            again = self.command(nth, "cat note")
            self.assertEqual(again.get("stdout"), "hello\n", again)
        self.assertEqual(self.sandbox_pods(), pod, "a sandbox was made anew")
        for nth in (0, 1):
            self.assertEqual([each["agent_id"] for each in self.call(nth, "/sandboxes")["sandboxes"]], ["a"])
        self.assertEqual(len(self.cluster.kubectl("-n", "isogate", "get", "pvc", "-o", "name").split()), 2)

    def test_the_api_server_takes_the_plain_manifests(self):
        for name in ("rbac.yaml", "gateway.yaml"):
            text = yaml.safe_dump_all(shipped(name)).replace("policy/v1\n", "policy/v1beta1\n")
            self.cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=text)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    helm()
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
