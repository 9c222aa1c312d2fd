#!/usr/bin/env python3
"""The chart and the sidecar on the tests' cluster: gateways in pods, with the service account that is shipped, and execs through
them. cluster_test.py BUILD_DIR; needs ISOGATE_TEST_KUBERNETES, and helm for the chart."""

import json
import os
import sys
import tempfile
import time
import unittest

import yaml

from cluster import IMAGE, Cluster, run
from manifests import CHART, helm, shipped

BUILD = ""


def new_key():
    key, digest = (line.split()[1] for line in run(f"{BUILD}/bin/isogate", "key", "new").splitlines())
    return key, digest


def setUpModule():
    OnCluster.work = tempfile.TemporaryDirectory(prefix="isogate-deploy-", dir="/var/tmp")
    OnCluster.cluster = Cluster(BUILD)
    OnCluster.cluster.import_gateway(OnCluster.work.name)
    OnCluster.cluster.admit("isogate", "isogate")
    OnCluster.key, OnCluster.digest = new_key()


def tearDownModule():
    OnCluster.cluster.kubectl("-n", "isogate-sandboxes", "delete", "leases,pods,pvc", "--now", "--wait=false",
                              "-l", "isogate.io/instance=deploy-sidecar")
    OnCluster.cluster.kubectl("-n", "isogate", "delete", "--ignore-not-found", "rolebinding", "isogate-test-restricted")
    OnCluster.work.cleanup()


class OnCluster(unittest.TestCase):
    cluster = work = key = digest = None
    # Of its gateways, and where their sandboxes are.
    instance, sandboxes = "", "isogate-sandboxes"

    def backend_config(self):
        return {"runner_image": self.cluster.runner_image, "image": "isogate-test:base", "pull_policy": "Never",
                "memory_request_mb": 16, "cpu_request": 0.001, "ephemeral_mb": 256, "workspace_mb": 64}

    def sandbox_pods(self):
        uids = self.cluster.of_pods(self.sandboxes, "{.items[*].metadata.uid}", "-l", f"isogate.io/instance={self.instance}")
        return uids.split()


class Plain(OnCluster):
    def test_the_api_server_takes_the_plain_manifests(self):
        every = shipped("rbac.yaml") + shipped("gateway.yaml") + shipped("sidecar.yaml")
        text = yaml.safe_dump_all(every)
        if self.cluster.old:
            text = text.replace("policy/v1\n", "policy/v1beta1\n")
        self.cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=text)


class Chart(OnCluster):
    """A release of helm's own, in namespaces of its own."""

    instance = "deploy-chart"
    home, sandboxes = f"isogate-{os.getpid()}", f"isogate-{os.getpid()}-sandboxes"
    name = f"isogate.{home}"  # of the certificate

    def setUp(self):
        helm()  # or skipped
        self.certificate = os.path.join(self.work.name, "tls.crt")
        private = os.path.join(self.work.name, "tls.key")
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=gateway", "-addext", f"subjectAltName=DNS:{self.name}", "-keyout", private,
            "-out", self.certificate)
        self.cluster.kubectl("create", "namespace", self.home)
        self.cluster.admit(self.home, self.home)
        self.at_home("create", "secret", "tls", "isogate-tls", "--cert", self.certificate, "--key", private)
        keys = json.dumps([{"name": "test", "tenant": "platform", "sha256": self.digest}])
        self.at_home("create", "secret", "generic", "callers", f"--from-literal=keys={keys}")

    def tearDown(self):
        self.cluster.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", self.home, self.sandboxes)

    def at_home(self, *arguments):
        return self.cluster.kubectl("--namespace", self.home, *arguments)

    def helm(self, *arguments, **options):
        places = {f"HELM_{place}_HOME": self.work.name for place in ("CACHE", "CONFIG", "DATA")}
        return run(helm(), *arguments, "--namespace", self.home, "--kubeconfig", self.cluster.kubeconfig,
                   env={**os.environ, **places}, **options)

    def install(self, replicas):
        """Installs or upgrades, and waits until it is ready."""
        values = {"replicas": replicas, "instance": self.instance, "keysSecret": {"name": "callers"},
                  "image": {"repository": IMAGE.split(":")[0], "tag": IMAGE.split(":")[1], "pullPolicy": "Never"},
                  "sandboxes": {"namespace": self.sandboxes, "config": self.backend_config()},
                  "resources": {"requests": {"cpu": "1m", "memory": "32Mi"}},
                  "networkPolicy": {"apiServerPorts": [self.cluster.api.port]},
                  "persistence": {"size": "16Mi"}, "env": self.cluster.api_environment()}
        self.helm("upgrade", "--install", "isogate", CHART, "--values", "-", input=yaml.safe_dump(values))
        self.cluster.admit(self.sandboxes, self.home)
        self.cluster.await_rollout(self.home, "statefulset/isogate")

    def call(self, nth, path, body=None, key=None):
        """One call of replica `nth`, over TLS with the gateway's own name."""
        address = self.at_home("get", "pod", f"isogate-{nth}", "-o", "jsonpath={.status.podIP}")
        data = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else []
        return json.loads(run("curl", "-sS", "--noproxy", "*", "--cacert", self.certificate,
                              "--resolve", f"{self.name}:9090:{address}", "-H", f"Authorization: Bearer {key or self.key}", *data,
                              f"https://{self.name}:9090{path}"))

    def command(self, nth, command):
        return self.call(nth, "/exec", {"agent_id": "a", "command": command})

    def test_gateways_of_the_chart_serve_the_same_agents_and_keep_their_state(self):
        self.install(replicas=1)
        first = self.command(0, "echo hello > note; cat note")
        self.assertEqual((first.get("stdout"), first.get("outcome")), ("hello\n", "exited"), first)
        self.assertEqual((first["backend"], first["isolation"]), ("k8s", "container"))
        pods = self.sandbox_pods()
        self.assertEqual(len(pods), 1)
        self.assertEqual(self.call(0, "/sandboxes", key=new_key()[0])["error"]["code"], "unauthenticated")

        self.install(replicas=2)  # another configuration: the first is replaced, too
        for nth in (0, 1):
            again = self.command(nth, "cat note")
            self.assertEqual(again.get("stdout"), "hello\n", again)
        self.assertEqual(self.sandbox_pods(), pods, "a sandbox was recreated")
        for nth in (0, 1):
            self.assertEqual([each["agent_id"] for each in self.call(nth, "/sandboxes")["sandboxes"]], ["a"])
        self.assertEqual(len(self.at_home("get", "pvc", "-o", "name").split()), 2)

        self.helm("uninstall", "isogate")
        self.assertEqual(self.sandbox_pods(), pods, "agents' work was deleted with the release")


class Sidecar(OnCluster):
    """deploy/k8s/sidecar.yaml with the tests' images; its agent runs one command and says what came of it."""

    instance = "deploy-sidecar"

    AGENT = ("ls /var/run/secrets/kubernetes.io 2>&1; id -u; "
             'curl -sS -H "Authorization: Bearer $ISOGATE_KEY" -H "Content-Type: application/json" '
             "-d '{\"command\": \"cat /proc/1/comm\"}' $ISOGATE_URL/exec; trap 'exit 0' TERM; sleep 600 & wait")

    def tearDown(self):
        self.cluster.kubectl("-n", "isogate", "delete", "--ignore-not-found", "deployment/agent", "configmap/agent-isogate",
                             "secret/agent-isogate")
        self.cluster.await_no_pods("isogate", "app=agent")

    def adapted(self, native=False):
        secret, config, deployment = shipped("sidecar.yaml")
        keys = json.loads(secret["stringData"]["keys"])
        keys[0]["sha256"] = self.digest
        secret["stringData"] = {"key": self.key, "keys": json.dumps(keys)}
        settings = yaml.safe_load(config["data"]["isogate.yaml"])
        settings["instance"] = self.instance
        settings["backends"][0]["config"].update(self.backend_config())
        config["data"]["isogate.yaml"] = yaml.safe_dump(settings)
        agent, gateway = deployment["spec"]["template"]["spec"]["containers"]
        agent.update({"image": "isogate-test:base", "imagePullPolicy": "Never", "args": ["/bin/sh", "-c", self.AGENT],
                      "resources": {"requests": {"cpu": "1m"}}})
        gateway.update({"image": IMAGE, "imagePullPolicy": "Never", "resources": {"requests": {"cpu": "1m"}}})
        gateway["env"] += self.cluster.api_environment()
        if native:
            containers = deployment["spec"]["template"]["spec"]
            containers["containers"] = [agent]
            containers["initContainers"] = [{**gateway, "restartPolicy": "Always", "startupProbe": gateway["readinessProbe"]}]
            agent["command"] = []
        return yaml.safe_dump_all([secret, config, deployment])

    def test_the_agent_starts_when_its_gateway_can_run_commands(self):
        self.try_sidecar(self.adapted())

    def test_a_native_sidecar_needs_no_script_that_waits(self):
        if self.cluster.old:
            self.skipTest("an init container that goes on is of Kubernetes 1.29")
        self.try_sidecar(self.adapted(native=True))

    def try_sidecar(self, objects):
        self.cluster.apply(objects)
        self.cluster.await_rollout("isogate", "deployment/agent")
        said = ""
        for _ in range(120):
            said = self.cluster.kubectl("-n", "isogate", "logs", "deployment/agent", "-c", "agent")
            if "}" in said:
                break
            time.sleep(0.5)
        self.assertIn("'/var/run/secrets/kubernetes.io': No such file", said)
        self.assertIn("\n10001\n", said, said)
        self.assertIn('"stdout":"isogate-runner\\n"', said)
        self.assertIn('"backend":"k8s"', said)
        self.assertEqual(len(self.sandbox_pods()), 1)

        self.cluster.kubectl("-n", "isogate", "delete", "deployment/agent")
        self.cluster.await_no_pods("isogate", "app=agent")
        self.cluster.await_no_pods(self.sandboxes, f"isogate.io/instance={self.instance}")  # they ended with it


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
