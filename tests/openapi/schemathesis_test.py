#!/usr/bin/env python3
"""Requests that schemathesis makes up from /openapi.json, against a running gateway: no answer is a defect, none is
undocumented. Skipped (77) where scripts/install-deps.sh --tests has not made the tools' environment.

    schemathesis_test.py BUILD_DIR [max-examples]
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get("ISOGATE_VENV", os.path.expanduser("~/.cache/isogate-venv")), "bin", "st")
CHECKS = "no_defect,status_code_conformance,content_type_conformance,response_schema_conformance"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(build, directory, port):
    config = os.path.join(directory, "isogate.yaml")
    with open(config, "w") as out:
        out.write(
            f"listen: ['127.0.0.1:{port}']\nstate_dir: {directory}/state\nplugin_dir: {build}/plugins\n"
            "allow_unisolated: true\nbackends: [{name: local}]\n"
            "exec: {timeout_sec: 1, max_timeout_sec: 1, max_background_sec: 1}\n"
        )
    log = open(os.path.join(directory, "log"), "w")
    gateway = subprocess.Popen([f"{build}/bin/isogate", "serve", "--config", config], stderr=log)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2)
            return gateway
        except OSError:
            time.sleep(0.1)
    gateway.kill()
    sys.exit("the gateway does not answer:\n" + open(log.name).read())


def main():
    build, examples = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "15"
    if not os.access(TOOL, os.X_OK):
        print(f"skipped: no {TOOL}; run scripts/install-deps.sh --tests")
        return 77
    with tempfile.TemporaryDirectory(prefix="schemathesis-", dir=build) as directory:
        os.chmod(directory, 0o755)
        port = free_port()
        gateway = start(build, directory, port)
        try:
            key = open(f"{directory}/state/local.key").read().strip()
            return subprocess.run(
                [
                    TOOL, "run", f"http://127.0.0.1:{port}/openapi.json", "-H", f"Authorization: Bearer {key}",
                    "--checks", CHECKS, "--max-examples", examples, "--generation-deterministic",
                    "--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--continue-on-failure",
                    "--exclude-operation-id", "watchDirectory",  # its response has no end
                    # MCP defines what they refuse, and its own suite tests that.
                    "--exclude-operation-id", "mcp", "--exclude-operation-id", "mcpOfAgent",
                    "--suppress-health-check", "all", "--warnings", "off", "--no-color",
                ],
                env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_checks", "PYTHONPATH": HERE,
                     "HYPOTHESIS_STORAGE_DIRECTORY": f"{directory}/hypothesis"},
                cwd=directory,
            ).returncode
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(60)


if __name__ == "__main__":
    sys.exit(main())
