#!/usr/bin/env python3
"""The backend k8s beside a bare spawn, an exec of the API server for each command, and kubectl; figures of the same run,
interleaved. Root, and a cluster of tests/engines/kubernetes.sh.

    k8s.py BUILD_DIR KUBECONFIG [--scale N] [--only NAME]     KUBECONFIG: what `up` printed; N divides the work
"""

import argparse
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from docker import first_exec, timed  # noqa: E402
from run import TRUE, Gateway, exec_http, median  # noqa: E402

ENGINES = os.path.join(os.path.dirname(HERE), "tests", "engines")
IMAGE = "isogate-test:base"
INSTANCE = f"bench-{os.getpid()}"
# Both kinds of pod have these limits.
LIMITS = {"memory": "512Mi", "cpu": "1"}


def printed(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Cluster:
    """kubectl and the API as the administrator, gateways as the product's own account."""

    def __init__(self, build, kubeconfig):
        self.build, self.kubeconfig = build, os.path.abspath(kubeconfig)
        directory = os.path.dirname(self.kubeconfig)
        self.program = os.path.join(printed(f"{ENGINES}/kubernetes/build.sh"), "kubectl")
        self.runner = printed(f"{ENGINES}/kubernetes.sh", "runner", directory, f"{build}/bin/isogate-runner")
        # The backend host runs as another user.
        self.account = tempfile.NamedTemporaryFile(prefix="bench-kubeconfig-", dir=build)
        with open(os.path.join(directory, "kubeconfig-isogate"), "rb") as given:
            self.account.write(given.read())
        self.account.flush()
        os.chmod(self.account.name, 0o644)
        view = json.loads(self.kubectl("config", "view", "--raw", "-o", "json"))
        cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
        self.server = urllib.parse.urlsplit(cluster["server"])
        self.token = user["token"]
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())

    def kubectl(self, *arguments, **options):
        return printed(self.program, "--kubeconfig", self.kubeconfig, *arguments, **options)

    def gateway(self, **config):
        config = {"kubeconfig": self.account.name, "namespace": "isogate-sandboxes", "image": IMAGE,
                  "runner_image": self.runner, "pull_policy": "Never", "memory_request_mb": 16, "cpu_request": 0.001,
                  "allow_unenforced_network": True, **config}
        options = f"    config: {json.dumps(config)}\ninstance: {INSTANCE}\n"
        return Gateway(self.build, options, "k8s")

    def run_pod(self, name, image=IMAGE, limits=None):
        """`kubectl run`, and until its container runs."""
        spec = {"containers": [{"name": name, "image": image, "imagePullPolicy": "Never", "command": ["sleep", "3600"],
                                "resources": {"limits": limits or {}, "requests": {"memory": "16Mi", "cpu": "1m"}}}],
                "terminationGracePeriodSeconds": 0}
        self.kubectl("run", name, "--image", image, "--restart", "Never",
                     "--overrides", json.dumps({"apiVersion": "v1", "spec": spec}))
        self.kubectl("wait", "--for", "condition=Ready", "--timeout", "120s", f"pod/{name}")

    def delete_pods(self, *names):
        self.kubectl("delete", "pod", "--now", "--ignore-not-found", *names)

    def clean(self):
        """What gateways leave: workspaces, and the leases that own everything else."""
        self.kubectl("delete", "-n", "isogate-sandboxes", "leases,pods,persistentvolumeclaims", "--now",
                     "-l", f"isogate.io/instance={INSTANCE}")

    @contextlib.contextmanager
    def exec_socket(self, pod, *argv, stdin=False):
        """An exec of the API server: connect, TLS, upgrade."""
        query = urllib.parse.urlencode([("command", each) for each in argv] + [("stdout", 1), ("stderr", 1)] +
                                       [("stdin", 1)] * stdin)
        with socket.create_connection((self.server.hostname, self.server.port)) as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.tls.wrap_socket(raw, server_hostname=self.server.hostname) as peer:
                peer.sendall(
                    f"GET /api/v1/namespaces/default/pods/{pod}/exec?{query} HTTP/1.1\r\nHost: {self.server.netloc}\r\n"
                    f"Authorization: Bearer {self.token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode())
                stream = peer.makefile("rb")
                if b" 101 " not in stream.readline():
                    sys.exit("the API server did not upgrade the exec")
                while stream.readline().strip():
                    pass
                yield peer, stream

    def websocket_exec(self, pod, *argv):
        """One exec for one command, to its status. Returns that."""
        with self.exec_socket(pod, *argv) as (_, stream):
            return json.loads(read_channel(stream, 3))["status"]


def read_channel(stream, channel):
    """The next message on this channel; the server masks nothing."""
    while True:
        first, length = stream.read(2)
        if length == 126:
            length = struct.unpack(">H", stream.read(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", stream.read(8))[0]
        payload = stream.read(length)
        if first & 15 == 8:
            sys.exit("an exec of the API server ended without a status")
        if payload[:1] == bytes([channel]) and len(payload) > 1:
            return payload[1:]


def ask(gateway, agent, connection):
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {gateway.key}"}
    connection.request("POST", "/exec", json.dumps({"argv": ["/bin/true"], "agent_id": agent}), head)
    answer = json.loads(connection.getresponse().read())
    if answer.get("exit_code") != 0:
        sys.exit(f"{agent}: {answer}")


def latency(cluster, scale):
    """One client: over a bare spawn; over an exec WebSocket and `kubectl exec` of the same command, in an identical pod; also
    a byte to a `cat` and back on an open exec: the part of API server, kubelet and containerd."""
    gateway = cluster.gateway()
    result = exec_http(cluster.build, "latency", gateway.port, gateway.key, TRUE, max(2000 // scale, 20), 0, "/bin/true")
    cluster.run_pod(f"{INSTANCE}-idle", limits=LIMITS)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    rows = {"isogate_ms": [], "byte_and_back_ms": [], "websocket_ms": [], "kubectl_ms": []}

    def byte_and_back():
        peer.sendall(b"\x82\x82\0\0\0\0\0x")
        read_channel(stream, 1)

    def websocket():
        if cluster.websocket_exec(f"{INSTANCE}-idle", "/bin/true") != "Success":
            sys.exit("an exec of the API server failed")

    ask(gateway, "default", connection)
    with cluster.exec_socket(f"{INSTANCE}-idle", "cat", stdin=True) as (peer, stream):
        for _ in range(max(40 // scale, 5)):
            rows["isogate_ms"] += [timed(lambda: ask(gateway, "default", connection)) for _ in range(10)]
            rows["byte_and_back_ms"] += [timed(byte_and_back) for _ in range(10)]
            rows["websocket_ms"].append(timed(websocket))
            rows["kubectl_ms"].append(timed(lambda: cluster.kubectl("exec", f"{INSTANCE}-idle", "--", "/bin/true")))
    connection.close()
    cluster.delete_pods(f"{INSTANCE}-idle")
    gateway.stop()
    middle = {name: round(median(values), 2) for name, values in rows.items()}
    own, ratios = result["http_p50_us"] / 1000, {}
    for name in ("websocket", "kubectl"):  # isogate_ms, interleaved with these, has some 0.6 ms of Python's client in it
        ratios[f"over_{name}"] = round(own / middle[f"{name}_ms"], 4)
        ratios[f"over_{name}_interleaved"] = round(middle["isogate_ms"] / middle[f"{name}_ms"], 4)
    return {**result, **middle, **ratios}


def throughput(cluster, scale):
    """Execs per second in one pod over as many threads of bare spawns."""
    gateway = cluster.gateway(cpus=0)  # the bare spawns have all processors, too
    result = {
        str(clients): exec_http(cluster.build, "throughput", gateway.port, gateway.key, TRUE, clients, 3 / scale,
                                "/bin/true")
        for clients in (1, 16, 64)
    }
    gateway.stop()
    return result


def cold(cluster, scale):
    """The first exec of a new agent, its workspace a claim or in the pod, over `kubectl run` until the pod is ready."""
    gateways = {"claim": cluster.gateway(), "empty_dir": cluster.gateway(workspace="empty_dir")}
    rows = {"claim": [], "empty_dir": [], "kubectl_run": []}
    for nth in range(max(10 // scale, 3)):
        for name, gateway in gateways.items():
            rows[name].append(first_exec(gateway, f"cold-{name[:5]}-{nth}"))
        pod = f"{INSTANCE}-{nth}"
        rows["kubectl_run"].append(timed(lambda: cluster.run_pod(pod, limits=LIMITS)))
        cluster.delete_pods(pod)
    for gateway in gateways.values():
        gateway.stop()
    middle = {name: round(median(values), 1) for name, values in rows.items()}
    return {**{f"{name}_ms": ms for name, ms in middle.items()},
            "claim_over_kubectl_run": round(middle["claim"] / middle["kubectl_run"], 3),
            "empty_dir_over_kubectl_run": round(middle["empty_dir"] / middle["kubectl_run"], 3)}


def wait_for_pool(gateway, count):
    for _ in range(1200):
        if re.search(rf"\b{count} of {count} sandboxes ready", gateway.curl(gateway.url("/backends")).decode()):
            return
        time.sleep(0.1)
    sys.exit(f"no pool of {count} within two minutes")


def warm(cluster, scale):
    """The first exec of a new agent from the pool, over a second exec, and over `kubectl run` until the pod is ready."""
    plugin = f"{cluster.build}/plugins/k8s.so"
    if '"warm_pool"' not in printed(f"{cluster.build}/bin/isogate", "plugin", "describe", "--json", plugin):
        return {"skipped": "this build has no warm_pool"}
    gateway = cluster.gateway(warm_pool=4)
    rows = {"claim_ms": [], "second_ms": [], "kubectl_run_ms": []}
    for nth in range(max(10 // scale, 3)):
        wait_for_pool(gateway, 4)
        rows["claim_ms"].append(first_exec(gateway, f"warm-{nth}"))
        rows["second_ms"].append(first_exec(gateway, f"warm-{nth}"))
        pod = f"{INSTANCE}-warm-{nth}"
        rows["kubectl_run_ms"].append(timed(lambda: cluster.run_pod(pod, limits=LIMITS)))
        cluster.delete_pods(pod)
    gateway.stop()
    middle = {name: round(median(values), 1) for name, values in rows.items()}
    return {**middle, "slowest_claim_ms": round(max(rows["claim_ms"]), 1),
            "claim_over_kubectl_run": round(middle["claim_ms"] / middle["kubectl_run_ms"], 4)}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def bytes_of(cluster, scale):
    """A file of 256 MiB up and down, in MiB/s, over `kubectl cp` and `kubectl exec cat`; every byte is compared."""
    size = (256 << 20) // scale
    gateway = cluster.gateway(memory_mb=0, cpus=0)
    here, back = os.path.join(gateway.dir, "file"), os.path.join(gateway.dir, "back")
    with open(here, "wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
    whole, pod = digest(here), f"{INSTANCE}-files"
    first_exec(gateway, "a")
    cluster.run_pod(pod)
    curl = ["curl", "-sS", "-f", "-H", f"Authorization: Bearer {gateway.key}"]
    url = gateway.url("/workspace/files/a/file")
    kubectl = [cluster.program, "--kubeconfig", cluster.kubeconfig]
    ways = {"up": [*curl, "-T", here, url], "down": [*curl, "-o", back, url],
            "kubectl_cp_up": [*kubectl, "cp", here, f"{pod}:/root/file"],
            "kubectl_cp_down": [*kubectl, "cp", f"{pod}:/root/file", back],
            "kubectl_exec_cat": ["sh", "-c", f"{' '.join(kubectl)} exec {pod} -- cat /root/file > {back}"]}
    rows, damaged = {name: [] for name in ways}, {}
    for _ in range(3):
        for name, command in ways.items():
            open(back, "w").close()
            rows[name].append(timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)))
            if not name.endswith("up") and digest(back) != whole:
                damaged[name] = damaged.get(name, 0) + 1
    gateway.stop()
    cluster.delete_pods(pod)
    if "down" in damaged:
        sys.exit("what came back is not what went up")
    speeds = {name: round(size / 1048576 / (median(ms) / 1000), 1) for name, ms in rows.items()}
    return {**speeds, "up_over_cp": round(speeds["up"] / speeds["kubectl_cp_up"], 2),
            "down_over_cp": round(speeds["down"] / speeds["kubectl_cp_down"], 2),
            "down_over_cat": round(speeds["down"] / speeds["kubectl_exec_cat"], 2), "damaged": damaged}


BENCHES = {"latency": latency, "throughput": throughput, "cold": cold, "warm": warm, "bytes": bytes_of}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("kubeconfig")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--only", choices=BENCHES)
    options = parser.parse_args()
    cluster = Cluster(os.path.abspath(options.build), options.kubeconfig)
    try:
        for name in [options.only] if options.only else BENCHES:
            print(f"\n== {name}: {BENCHES[name].__doc__}", flush=True)
            print(json.dumps(BENCHES[name](cluster, options.scale), indent=2), flush=True)
    finally:
        cluster.clean()


if __name__ == "__main__":
    main()
