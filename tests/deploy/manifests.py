"""Manifests as the tests read them: documents by (kind, namespace, name), from files and from helm."""

import os
import subprocess
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHART = os.path.join(ROOT, "deploy", "helm", "isogate")
# What helm adds to its own objects.
OF_HELM = ("helm.sh/", "checksum/", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")


def helm():
    """The program; unittest.SkipTest where there can be none."""
    found = subprocess.run([os.path.join(HERE, "helm.sh")], capture_output=True, text=True)
    if found.returncode != 0:
        raise unittest.SkipTest(found.stderr.strip())
    return found.stdout.strip()


def render(*options, kube_version="1.30.0", stdin=None, check=True):
    return subprocess.run(
        [helm(), "template", "isogate", CHART, "--namespace", "isogate", "--kube-version", kube_version, *options],
        input=stdin, capture_output=True, text=True, check=check)


def documents(text):
    return [each for each in yaml.safe_load_all(text) if each]


def shipped(name):
    with open(os.path.join(ROOT, "deploy", "k8s", name)) as file:
        return documents(file.read())


def key_of(document):
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def essence(document):
    """Without what helm adds, and with the gateway's configuration parsed."""
    if isinstance(document, dict):
        slim = {}
        for name, value in document.items():
            if str(name).startswith(OF_HELM):
                continue
            value = yaml.safe_load(value) if name == "isogate.yaml" else essence(value)
            if name not in ("labels", "annotations", "metadata") or value:
                slim[name] = value
        return slim
    return [essence(each) for each in document] if isinstance(document, list) else document
