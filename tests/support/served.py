"""A real gateway for tests that are programs of Python: it serves one backend until it is stopped. And the SDKs that
scripts/install-deps.sh --tests installs, each in a directory of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SDKS = os.environ.get("ISOGATE_SDKS", os.path.expanduser("~/.cache/isogate-sdks"))
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would not reach the loopback
PYTHON = os.path.join(os.environ.get("ISOGATE_VENV", os.path.expanduser("~/.cache/isogate-venv")), "bin", "python")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def backend_config(backend, build, work):
    """The backend's configuration, and the environment of its backend host."""
    if backend == "docker":
        engine = os.environ.get("ISOGATE_TEST_DOCKER", "")
        if not engine:
            skip("ISOGATE_TEST_DOCKER names no Engine: tests/engines/docker.sh up prints one")
        return {"image": "isogate-test:base"}, {"DOCKER_HOST": engine}
    if backend == "k8s":
        sys.path.insert(0, os.path.join(HERE, "..", "deploy"))
        from cluster import Cluster
        cluster = Cluster(build)
        account = shutil.copyfile(f"{cluster.directory}/kubeconfig-isogate", f"{work}/kubeconfig")
        os.chmod(account, 0o644)  # the backend's host is another user
        return {"kubeconfig": account, "runner_image": cluster.runner_image, "image": "isogate-test:base",
                "pull_policy": "Never", "memory_request_mb": 16, "cpu_request": 0.001, "ephemeral_mb": 512,
                "workspace_mb": 512, "ready_timeout_sec": 240}, {}
    # An ordinary user's gateway has no cgroups in most places.
    return {} if os.geteuid() == 0 or backend == "local" else {"memory_mb": 0, "cpus": 0, "pids": 0}, {}


class Gateway:
    """A gateway of one backend in `work`, with a key; `more` is added to its configuration, `of_backend` to the backend's."""

    def __init__(self, build, backend, work, more=None, of_backend=None):
        config, environment = backend_config(backend, build, work)
        key = json.loads(subprocess.check_output([f"{build}/bin/isogate", "key", "new", "--e2b", "--json"]))
        self.key, self.work, self.log = key["key"], work, f"{work}/log"
        self.backend, self.egress = backend, "open"
        settings = {
            "instance": f"test-{os.getpid()}", "state_dir": f"{work}/state", "plugin_dir": f"{build}/plugins",
            "listen": ["127.0.0.1:0"], "allow_unisolated": True, "on_shutdown": "keep",
            "keys": [{"name": "sdk", "tenant": "team", "sha256": key["sha256"]}],
            "backends": [{"name": backend, "config": config, **(of_backend or {})}], **(more or {})}
        if backend == "k8s" and os.path.exists(os.path.join(os.path.dirname(os.environ["ISOGATE_TEST_KUBERNETES"]),
                                                            "policies.ready")):
            self.egress = settings["backends"][0]["egress"] = "deny"
        with open(f"{work}/isogate.yaml", "w") as file:
            json.dump(settings, file)  # which is YAML, too
        self.command, self.environment = [f"{build}/bin/isogate", "serve", "--config", f"{work}/isogate.yaml"], environment
        self.start()

    def start(self):
        with open(self.log, "w") as log:
            self.program = subprocess.Popen(self.command, stderr=log, env={**os.environ, **self.environment})
        self.await_ready()

    def logged(self):
        with open(self.log) as file:
            return file.read()

    def await_ready(self):
        until = time.monotonic() + 120
        while True:
            listening = re.search(r'"event":"listening","listen":"([^"]+)"', self.logged())
            if listening:
                tcp = [each for each in listening.group(1).split() if not each.startswith("unix:")]
                self.api, self.door = f"http://{tcp[0]}", f"http://{tcp[-1]}"
                try:
                    self.call("GET", "/readyz")
                    break
                except OSError:
                    pass
            if self.program.poll() is not None or time.monotonic() > until:
                self.stop()
                sys.exit("the gateway does not serve:\n" + self.logged())
            time.sleep(0.1)
        self.capabilities = self.call("GET", "/backends")["backends"][0]["capabilities"]

    def call(self, method, path):
        request = urllib.request.Request(self.api + path, method=method, headers={"Authorization": f"Bearer {self.key}"})
        with OPENER.open(request, timeout=120) as answer:
            return json.loads(answer.read() or "{}")

    def sandboxes(self):
        return [each["agent_id"] for each in self.call("GET", "/sandboxes")["sandboxes"]]

    def purge(self):
        for each in self.sandboxes():
            try:
                self.call("DELETE", f"/sandboxes/{each}?purge=true")
            except urllib.error.HTTPError:  # it has just been ended
                pass

    def stop(self):
        self.program.terminate()
        self.program.wait(120)


def node_obstacle():
    """Why no JavaScript program can run; None: it can."""
    node = shutil.which("node")
    if not node:
        return "no node"
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    return None if int(re.match(r"v?(\d+)", version).group(1)) >= 20 else f"it needs node 20 or newer, and this one is {version}"


def command_of(here, release, cases):
    """The command that runs these cases with the SDK of a directory, or None and the reason."""
    directory = os.path.join(SDKS, release)
    if not os.path.isdir(directory):
        return None, f"no {directory}; run scripts/install-deps.sh --tests"
    if not cases.endswith(".mjs"):
        return [PYTHON if os.path.exists(PYTHON) else sys.executable, "-W", "ignore", "-m", "unittest", "-v", cases], None
    obstacle = node_obstacle()
    return (None, obstacle) if obstacle else (["node", os.path.join(here, cases), directory], None)
