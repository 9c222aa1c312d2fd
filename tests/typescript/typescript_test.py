#!/usr/bin/env python3
"""The client for TypeScript: its types are made of the document, it compiles, its cases pass without a gateway, and its
example runs on a real one.

    typescript_test.py BUILD_DIR
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from served import SDKS, Gateway, node_obstacle, skip

PACKAGES = os.path.join(SDKS, "npm-isogate-client-1", "node_modules")
EXPECTED = """hello from TypeScript: exited with 3
line 1
line 2
line 3
ended: exited
refused: file_not_found
"""


def main():
    build = os.path.abspath(sys.argv[1])
    if obstacle := node_obstacle():
        skip(obstacle)
    if not os.path.isdir(PACKAGES):
        skip(f"no {PACKAGES}; run scripts/install-deps.sh --tests")
    with tempfile.TemporaryDirectory(prefix="isogate-typescript-", dir="/var/tmp") as work:
        os.chmod(work, 0o711)
        client = f"{work}/clients/typescript"
        shutil.copytree(os.path.join(ROOT, "clients", "typescript"), client,
                        ignore=shutil.ignore_patterns("node_modules", "dist", "api.ts"))
        os.mkdir(f"{work}/docs")
        shutil.copy(os.path.join(ROOT, "docs", "openapi.json"), f"{work}/docs")
        os.symlink(PACKAGES, f"{client}/node_modules")
        subprocess.run(["npm", "run", "--silent", "build"], check=True, cwd=client, stdin=subprocess.DEVNULL)
        print("the types are made, and the client compiles", flush=True)
        subprocess.run(["node", "--test", f"{HERE}/offline_cases.mjs"], check=True, cwd=client, timeout=120)
        os.mkdir(f"{work}/gateway", 0o711)
        gateway = Gateway(build, "local", f"{work}/gateway")
        try:
            done = subprocess.run(["npm", "run", "--silent", "hello"], cwd=client, text=True, stdout=subprocess.PIPE,
                                  timeout=120, env={**os.environ, "ISOGATE_URL": gateway.api, "ISOGATE_KEY": gateway.key})
            left = gateway.sandboxes()
        finally:
            gateway.stop()
    print(done.stdout)
    assert (done.returncode, done.stdout, left) == (0, EXPECTED, []), (done.returncode, left)


if __name__ == "__main__":
    main()
