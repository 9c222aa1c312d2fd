#!/usr/bin/env python3
"""E2B's own SDKs, unmodified, on a real gateway: each release runs its cases in a process of its own, against one gateway of
one backend. Releases that scripts/install-deps.sh --tests has not installed are skipped, all of them: 77.

    sdk_test.py BUILD_DIR local|namespace|docker|k8s [RELEASE…]    docker and k8s need ISOGATE_TEST_DOCKER, _KUBERNETES
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from served import SDKS, Gateway, command_of, skip

DOMAIN = "sandboxes.test"
NEWEST = {"e2b-2.63.0": "sdk_cases"}
OTHERS = {
    "e2b-2.7.0": "sdk_cases",
    "e2b-code-interpreter-2.11.5": "interpreter_cases",
    "langchain-e2b-0.0.6": "framework_cases.LangChain",
    "openai-agents-0.24.0": "framework_cases.OpenAIAgents",
    "npm-e2b-2.51.0": "sdk_cases.mjs",
    "npm-e2b-2.7.0": "sdk_cases.mjs",
}


@contextlib.contextmanager
def template_image(backend):
    """An image that the Engine has in addition to the backend's own, recognized by a file. None: no images."""
    engine = os.environ.get("ISOGATE_TEST_DOCKER")
    if backend != "docker" or not engine:
        yield None
        return
    image, docker = f"isogate-test:template-{os.getpid()}", ["docker", "-H", engine]
    container = subprocess.check_output([*docker, "create", "isogate-test:base", "true"], text=True).strip()
    try:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("of the template\n")
            file.flush()
            os.chmod(file.name, 0o644)
            subprocess.check_call([*docker, "cp", file.name, f"{container}:/etc/template"], stdout=subprocess.DEVNULL)
        subprocess.check_call([*docker, "commit", container, image], stdout=subprocess.DEVNULL)
        yield image
    finally:
        subprocess.call([*docker, "rm", "-f", container], stdout=subprocess.DEVNULL)
        subprocess.call([*docker, "image", "rm", "-f", image], stdout=subprocess.DEVNULL)


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
    command, obstacle = command_of(HERE, release, cases)
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
    with tempfile.TemporaryDirectory(prefix="isogate-e2b-", dir="/var/tmp") as work, template_image(backend) as image:
        os.chmod(work, 0o711)
        templates, admitted = {"code-interpreter-v1": ""}, {}
        if image:
            templates = {"tools": image, "absent": "isogate-test:absent", "barred": "isogate-other:1", "bare": "isogate-test:small"}
            admitted = {"images": ["isogate-test:*"]}
        door = {"listen": ["127.0.0.1:0"], "domain": DOMAIN, "templates": templates}
        gateway = Gateway(build, backend, work, {"e2b": door}, admitted)
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
