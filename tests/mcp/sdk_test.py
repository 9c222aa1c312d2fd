#!/usr/bin/env python3
"""The official MCP packages, unmodified, on a real gateway: each runs its cases in a process of its own, against one gateway of
one backend. On `local` the conformance suite, too. What scripts/install-deps.sh --tests has not installed is skipped, all of it: 77.

    sdk_test.py BUILD_DIR local|namespace|docker|k8s    docker and k8s need ISOGATE_TEST_DOCKER, _KUBERNETES
"""

import os
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from served import SDKS, Gateway, command_of, skip

RELEASES = {"mcp-2.3.0": "sdk_cases", "npm-mcp-client-2.4.0": "sdk_cases.mjs", "npm-mcp-sdk-1.32.2": "sdk_cases.mjs"}
# Where a sandbox takes seconds: one way of each kind.
FEW = {"mcp-2.3.0": "sdk_cases.HttpOf2026", "npm-mcp-sdk-1.32.2": "sdk_cases.mjs"}
CONFORMANCE = "npm-mcp-conformance"


def run_release(gateway, release, cases):
    """True: its cases passed. None: skipped, and the reason is printed."""
    command, obstacle = command_of(HERE, release, cases)
    if obstacle:
        print(f"{release}: skipped: {obstacle}", flush=True)
        return None
    began = time.monotonic()
    passed = subprocess.run(command, timeout=500, env={
        **os.environ, "ISOGATE_URL": gateway.api, "ISOGATE_TEST_KEY": gateway.key,
        "ISOGATE_TEST_KEY_FILE": f"{gateway.work}/key", "ISOGATE_TEST_PROGRAM": gateway.command[0],
        "ISOGATE_TEST_BACKEND": gateway.backend,
        "PYTHONPATH": f"{HERE}:{SDKS}/{release}", "PYTHONDONTWRITEBYTECODE": "1"}).returncode == 0
    gateway.purge()
    print(f"{release} on {gateway.backend}: {'passed' if passed else 'FAILED'} after {time.monotonic() - began:.1f} s",
          flush=True)
    return passed


def run_conformance(build):
    """The suite sends no key, and an Origin of its own: an open listener of loopback, that lists it."""
    directory = os.path.join(SDKS, CONFORMANCE)
    node = os.path.join(directory, "node_modules", ".bin", "node")
    if not os.path.exists(node):
        print(f"{CONFORMANCE}: skipped: no {node}; run scripts/install-deps.sh --tests", flush=True)
        return None
    suite = [node, os.path.join(directory, "node_modules", ".bin", "conformance"), "server"]
    passed = True
    with tempfile.TemporaryDirectory(prefix="isogate-mcp-", dir="/var/tmp") as work, socket.socket() as reserved:
        os.chmod(work, 0o711)
        # Nobody else gets its port, and the gateway may listen on it, too: both reuse addresses.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        gateway = Gateway(build, "local", work, {
            "listen": [address], "anonymous": "loopback", "cors": {"origins": [f"http://{address}"]}})
        try:
            for revision in ("2025-11-25", "2026-07-28"):
                result = subprocess.run(
                    suite + ["--url", f"{gateway.api}/mcp", "--requirements", revision, "--expected-failures",
                             os.path.join(HERE, f"conformance-{revision}.yml"), "-o", f"{work}/results"],
                    cwd=work, capture_output=True, text=True, timeout=300)
                if result.returncode != 0:
                    print(result.stdout[-6000:], result.stderr[-2000:])
                    passed = False
                print(f"conformance, {revision}: {'as expected' if result.returncode == 0 else 'FAILED'}", flush=True)
        finally:
            gateway.stop()
    return passed


def main():
    build, backend = os.path.abspath(sys.argv[1]), sys.argv[2]
    releases = FEW if backend in ("docker", "k8s") else RELEASES
    if not any(os.path.isdir(os.path.join(SDKS, name)) for name in releases):
        skip(f"none of {', '.join(releases)} in {SDKS}; run scripts/install-deps.sh --tests")
    with tempfile.TemporaryDirectory(prefix="isogate-mcp-", dir="/var/tmp") as work:
        os.chmod(work, 0o711)
        gateway = Gateway(build, backend, work)
        with open(f"{work}/key", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(gateway.key)
        try:
            results = [run_release(gateway, *each) for each in releases.items()]
            if False in results:
                print("the gateway's log ends with\n" + "".join(gateway.logged().splitlines(True)[-25:]))
        finally:
            gateway.stop()
    if backend == "local":
        results.append(run_conformance(build))
    print(f"{results.count(True)} of {len(results)} passed on {backend}, {results.count(None)} skipped")
    return 1 if False in results else 0 if True in results else 77


if __name__ == "__main__":
    sys.exit(main())
