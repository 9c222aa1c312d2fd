#!/usr/bin/env python3
"""The client for Python, or one of its adapters, on a real gateway of one backend: a suite of pytest in a process of its own.

    suite_test.py BUILD_DIR local|namespace|docker|k8s SUITE [ARGUMENT OF pytest…]

docker and k8s need ISOGATE_TEST_DOCKER, _KUBERNETES. A suite whose packages scripts/install-deps.sh --tests has not installed
is skipped: 77.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CLIENT = os.path.join(ROOT, "clients", "python", "src")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from served import PYTHON, SDKS, Gateway, skip

# suite: the directory of its packages, and its cases
SUITES = {
    "client": ("isogate-client-1", "client_cases.py"),
    "inspect": ("inspect-ai-0.3.285", "inspect_cases.py"),
    "langchain": ("deepagents-0.7.32", "langchain_cases.py"),
    "langchain-0.6": ("deepagents-0.6.12", "langchain_cases.py"),
}


def environment(gateway, packages):
    """The environment of a program that finds the gateway by it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ISOGATE_")}
    return {**inherited, "ISOGATE_URL": gateway.api, "ISOGATE_KEY": gateway.key, "PYTHONPATH": f"{CLIENT}:{packages}",
            "PYTHONDONTWRITEBYTECODE": "1", "ISOGATE_TEST_BACKEND": gateway.backend,
            "ISOGATE_TEST_CAPABILITIES": " ".join(gateway.capabilities)}


def main():
    build, backend, suite = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
    release, cases = SUITES[suite]
    packages = os.path.join(SDKS, release)
    if not os.path.isdir(packages):
        skip(f"no {packages}; run scripts/install-deps.sh --tests")
    with tempfile.TemporaryDirectory(prefix="isogate-python-", dir="/var/tmp") as work:
        os.chmod(work, 0o711)
        # For the adapters less than what they ask for when nobody names a timeout, as most operators admit.
        admitted = {} if suite == "client" else {"exec": {"max_timeout_sec": 45, "max_background_sec": 300}}
        gateway = Gateway(build, backend, work, admitted)
        try:
            passed = subprocess.run(
                [PYTHON if os.path.exists(PYTHON) else sys.executable, "-m", "pytest", "-q", "-rfExXs", "-p",
                 "no:cacheprovider", "-c", f"{HERE}/pytest.ini", f"{HERE}/{cases}", *sys.argv[4:]],
                timeout=400, cwd=HERE, env=environment(gateway, packages)).returncode == 0
            if not passed:
                print("the gateway's log ends with\n" + "".join(gateway.logged().splitlines(True)[-25:]))
            gateway.purge()
        finally:
            gateway.stop()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
