#!/usr/bin/env python3
"""E2B's own SDKs, unmodified, on a real gateway: each release runs its cases in a process of its own, against one gateway of
one backend. Releases that scripts/install-deps.sh --tests has not installed are skipped, all of them: 77.

    sdk_test.py BUILD_DIR local|namespace|docker|k8s [RELEASE…]    docker and k8s need ISOGATE_TEST_DOCKER, _KUBERNETES
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SDKS = os.environ.get("ISOGATE_SDKS", os.path.expanduser("~/.cache/isogate-sdks"))
PYTHON = os.path.join(os.environ.get("ISOGATE_VENV", os.path.expanduser("~/.cache/isogate-venv")), "bin", "python")
DOMAIN = "sandboxes.test"
NEWEST = {"e2b-2.63.0": "sdk_cases"}
OTHERS = {
    "e2b-2.7.0": "sdk_cases",
    "langchain-e2b-0.0.6": "framework_cases.LangChain",
    "openai-agents-0.24.0": "framework_cases.OpenAIAgents",
    "npm-e2b-2.51.0": "sdk_cases.mjs",
    "npm-e2b-2.7.0": "sdk_cases.mjs",
}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def backend_config(backend, build, work):
    """What the backend is configured with, and what its host has in its environment."""
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
    def __init__(self, build, backend, work):
        config, environment = backend_config(backend, build, work)
        key = json.loads(subprocess.check_output([f"{build}/bin/isogate", "key", "new", "--e2b", "--json"]))
        self.key, self.work, self.log = key["key"], work, f"{work}/log"
        self.backend, self.egress = backend, "open"
        settings = {
            "instance": f"e2b-{os.getpid()}", "state_dir": f"{work}/state", "plugin_dir": f"{build}/plugins",
            "listen": ["127.0.0.1:0"], "e2b": {"listen": ["127.0.0.1:0"], "domain": DOMAIN}, "allow_unisolated": True,
            "on_shutdown": "keep",
            "keys": [{"name": "sdk", "tenant": "team", "sha256": key["sha256"]}],
            "backends": [{"name": backend, "config": config}]}
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
            listening = re.search(r'"event":"listening","listen":"(\S+) [^"]*?([^ "]+)"', self.logged())
            if listening:
                self.api, self.door = (f"http://{each}" for each in listening.groups())
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
        with urllib.request.urlopen(request, timeout=120) as answer:
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


def command_of(release, cases):
    """What runs these cases with the SDK, or why nothing does."""
    directory = os.path.join(SDKS, release)
    if not os.path.isdir(directory):
        return None, f"no {directory}; run scripts/install-deps.sh --tests"
    if not cases.endswith(".mjs"):
        return [PYTHON if os.path.exists(PYTHON) else sys.executable, "-W", "ignore", "-m", "unittest", "-v", cases], None
    node = shutil.which("node")
    if not node:
        return None, "no node"
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    if int(re.match(r"v?(\d+)", version).group(1)) < 20:
        return None, f"it needs node 20 or newer, and this one is {version}"
    return [node, os.path.join(HERE, cases), directory], None


def run_cases(gateway, command, release):
    """Whether they passed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    return subprocess.run(command, timeout=400, env={
        **inherited, "E2B_API_URL": gateway.door, "E2B_SANDBOX_URL": gateway.door, "E2B_API_KEY": gateway.key,
        "PYTHONPATH": f"{HERE}:{SDKS}/{release}", "PYTHONDONTWRITEBYTECODE": "1", "ISOGATE_TEST_BACKEND": gateway.backend,
        "ISOGATE_TEST_CAPABILITIES": " ".join(gateway.capabilities), "ISOGATE_TEST_EGRESS": gateway.egress,
        "ISOGATE_TEST_NOTES": f"{gateway.work}/notes"}).returncode == 0


def run_release(gateway, release, cases):
    """True: its cases passed. None: skipped, and the reason is printed."""
    command, obstacle = command_of(release, cases)
    if obstacle:
        print(f"{release}: skipped: {obstacle}", flush=True)
        return None
    began = time.monotonic()
    passed = run_cases(gateway, command, release)
    gateway.purge()
    if release in NEWEST:
        passed = run_cases(gateway, command[:-1] + ["restart_cases.Before"], release) and passed
        gateway.stop()
        gateway.start()
        passed = run_cases(gateway, command[:-1] + ["restart_cases.After"], release) and passed
        gateway.purge()
    seconds = time.monotonic() - began
    print(f"{release} on {gateway.backend}: {'passed' if passed else 'FAILED'} after {seconds:.1f} s", flush=True)
    return passed


def main():
    build, backend = os.path.abspath(sys.argv[1]), sys.argv[2]
    releases = dict(NEWEST)
    if backend == "namespace" or backend == "local" and os.geteuid() != 0:
        releases.update(OTHERS)
    if sys.argv[3:]:
        releases = {name: {**NEWEST, **OTHERS}[name] for name in sys.argv[3:]}
    if not any(os.path.isdir(os.path.join(SDKS, name)) for name in releases):
        skip(f"none of {', '.join(releases)} in {SDKS}; run scripts/install-deps.sh --tests")
    with tempfile.TemporaryDirectory(prefix="isogate-e2b-", dir="/var/tmp") as work:
        os.chmod(work, 0o711)
        gateway = Gateway(build, backend, work)
        try:
            results = [run_release(gateway, *each) for each in releases.items()]
            if False in results:
                print("the gateway's log ends with\n" + "".join(gateway.logged().splitlines(True)[-25:]))
        finally:
            gateway.stop()
    print(f"{results.count(True)} of {len(results)} releases passed on {backend}, {results.count(None)} skipped")
    return 1 if False in results else 0 if True in results else 77


if __name__ == "__main__":
    sys.exit(main())
