#!/usr/bin/env python3
"""The chart against the plain manifests, and what it refuses. Needs helm (helm.sh), no cluster."""

import json
import shlex
import subprocess
import sys
import unittest

import yaml

from manifests import CHART, ROOT, documents, essence, helm, key_of, render, shipped

# Any object that the chart creates in the release's namespace or in the sandboxes', without the chart's own labels.
OWN = {"app.kubernetes.io/name": "isogate", "app.kubernetes.io/instance": "isogate"}


def without_own_labels(document):
    labels = document["metadata"].get("labels", {})
    kept = {name: value for name, value in labels.items() if name not in OWN}
    document["metadata"].pop("labels", None)
    return {**document, "metadata": {**document["metadata"], **({"labels": kept} if kept else {})}}


def rendered(*options, **more):
    return {key_of(each): without_own_labels(essence(each)) for each in documents(render(*options, **more).stdout)}


def config_of(objects):
    return objects["ConfigMap", "isogate", "isogate"]["data"]["isogate.yaml"]


def container_of(objects):
    return objects["StatefulSet", "isogate", "isogate"]["spec"]["template"]["spec"]["containers"][0]


class Chart(unittest.TestCase):
    maxDiff = None

    def test_lint_finds_nothing(self):
        done = subprocess.run([helm(), "lint", "--strict", CHART], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_its_defaults_are_the_plain_manifests(self):
        plain = {key_of(each): essence(each) for each in shipped("rbac.yaml") + shipped("gateway.yaml")}
        del plain["Namespace", "", "isogate"]  # helm's own, by --create-namespace
        chart = rendered()
        self.assertEqual(sorted(chart), sorted(plain))
        for key, document in plain.items():
            self.assertEqual(chart[key], document, key)

    def test_nodes_are_read_only_where_that_is_asked_for(self):
        plain = {each["kind"]: each for each in shipped("rbac-nodes.yaml")}
        chart = {kind: each for (kind, _, _), each in rendered("--set", "sandboxes.readNodes=true").items()
                 if kind.startswith("ClusterRole")}
        self.assertEqual(sorted(chart), sorted(plain))
        self.assertEqual(chart["ClusterRole"]["rules"], plain["ClusterRole"]["rules"])
        self.assertEqual(chart["ClusterRoleBinding"]["subjects"], plain["ClusterRoleBinding"]["subjects"])
        self.assertEqual(chart["ClusterRoleBinding"]["roleRef"]["name"], chart["ClusterRole"]["metadata"]["name"])

    def test_several_replicas_have_the_settings_of_one(self):
        objects = rendered("--set", "replicas=3")
        self.assertEqual(objects["StatefulSet", "isogate", "isogate"]["spec"]["replicas"], 3)
        self.assertEqual(config_of(objects), config_of(rendered()))

    def test_settings_replace_its_own(self):
        values = {"settings": {"multi_agent": False, "limits": {"max_execs": 1000000}, "log": {"level": "debug"}},
                  "sandboxes": {"config": {"workspace": "empty_dir", "image": "other"}, "limits": {"memory_mb": 64}}}
        config = config_of(rendered("--values", "-", stdin=yaml.safe_dump(values)))
        self.assertIs(config["multi_agent"], False)
        self.assertEqual(config["limits"], {"max_execs": 1000000, "max_held_bytes": 268435456})
        backend = config["backends"][0]
        self.assertEqual(backend["limits"], {"memory_mb": 64})
        self.assertEqual((backend["config"]["workspace"], backend["config"]["image"]), ("empty_dir", "other"))
        self.assertIs(backend["config"]["in_cluster"], True)

    def test_it_takes_the_options_of_its_page(self):
        with open(f"{ROOT}/docs/kubernetes.md") as page:
            command = page.read().split("\nhelm install ", 1)[1].split("```", 1)[0]
        words = shlex.split(command.replace("\\\n", " "))
        self.assertEqual(words[:4], ["isogate", "deploy/helm/isogate", "-n", "isogate"])
        objects = rendered(*words[4:])
        self.assertEqual(container_of(objects)["image"], "registry.example/isogate:1")
        self.assertEqual(config_of(objects)["backends"][0]["config"]["runner_image"], "registry.example/isogate-runner:1")
        self.assertEqual(container_of(objects)["env"][0]["valueFrom"]["secretKeyRef"]["name"], "isogate-keys")

    def test_a_tag_may_look_like_a_number(self):
        self.assertEqual(container_of(rendered("--set", "image.tag=7"))["image"], "registry.example/isogate:7")
        of_file = rendered("--values", "-", stdin="image: {tag: 20261129}")
        self.assertEqual(container_of(of_file)["image"], "registry.example/isogate:20261129")

    def test_a_start_may_take_as_long_as_the_gateway_waits_for_another(self):
        for settings, least in (({}, 60), ({"wait_for_sidecar": "other:9090"}, 90 + 60),
                                ({"wait_for_sidecar": "other:9090", "wait_for_sidecar_timeout_sec": 3600}, 90 + 3600)):
            probe = container_of(rendered("--values", "-", stdin=yaml.safe_dump({"settings": settings})))["startupProbe"]
            self.assertEqual(probe["httpGet"]["path"], "/livez")
            self.assertGreater(probe["periodSeconds"] * probe["failureThreshold"], least)

    def test_keys_of_a_secret_are_in_no_other_object(self):
        objects = rendered("--set", "keysSecret.name=callers")
        self.assertNotIn("keys", config_of(objects))
        self.assertEqual(container_of(objects)["env"], [
            {"name": "ISOGATE_KEYS", "valueFrom": {"secretKeyRef": {"name": "callers", "key": "keys"}}}])

    def test_a_changed_configuration_restarts_the_gateway(self):
        def checksum(*options):
            for each in documents(render(*options).stdout):
                if each["kind"] == "StatefulSet":
                    return each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        self.assertEqual(checksum(), checksum())
        self.assertNotEqual(checksum(), checksum("--set", "instance=other"))

    def test_plain_http_has_to_be_written_down(self):
        objects = rendered("--set", "tls.secretName=,allowPlainHttp=true")
        self.assertNotIn("tls", config_of(objects))
        self.assertEqual(container_of(objects)["readinessProbe"]["httpGet"]["scheme"], "HTTP")

    def test_probes_need_no_client_certificate(self):
        for tls, by_http in (({"client_ca": "/ca.pem"}, False),
                             ({"client_ca": "/ca.pem", "client_auth": "required"}, False),
                             ({"client_ca": "/ca.pem", "client_auth": "optional"}, True),
                             ({"client_auth": "required"}, True)):
            container = container_of(rendered("--values", "-", stdin=yaml.safe_dump({"settings": {"tls": tls}})))
            probes = [container["readinessProbe"], container["livenessProbe"]]
            self.assertEqual(["httpGet" in each for each in probes], [by_http, by_http], tls)
            if not by_http:
                self.assertEqual(probes[0]["exec"]["command"], ["/usr/local/bin/isogate", "probe"])
                self.assertEqual(probes[1]["tcpSocket"], {"port": "gateway"})

    def test_an_older_cluster_gets_its_own_disruption_budget(self):
        budget = rendered(kube_version="1.20.2")["PodDisruptionBudget", "isogate", "isogate"]
        self.assertEqual(budget["apiVersion"], "policy/v1beta1")

    def test_mistakes_are_refused_with_their_reason(self):
        for values, reason in (
            ({"replica": 2}, "replica is not allowed"),
            ({"replicas": 0}, "greater than or equal to 1"),
            ({"keys": [{"name": "a", "tenant": "b", "sha256": "c"}]}, "Does not match pattern"),
            ({"keys": []}, "nobody may call"),
            ({"tls": {"secretName": ""}}, "allowPlainHttp: true"),
            ({"allowPlainHttp": True}, "needs an empty tls.secretName"),
            ({"sandboxes": {"namespace": "isogate"}}, "may not be in the namespace of its sandboxes"),
        ):
            done = render("--values", "-", stdin=json.dumps(values), check=False)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    try:
        helm()
    except unittest.SkipTest as why:
        print(f"skipped: {why}")
        sys.exit(77)
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
