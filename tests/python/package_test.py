#!/usr/bin/env python3
"""The package for Python without a gateway: its wheel is built offline by Debian's own tools and holds what it should, its
types are checked, and its cases pass with the wheel.

    package_test.py BUILD_DIR
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from served import PYTHON, SDKS, skip

SOURCE = os.path.join(ROOT, "clients", "python")
PACKAGES = [os.path.join(SDKS, each) for each in ("isogate-client-1", "inspect-ai-0.3.285", "deepagents-0.7.32")]


def build_wheel(work):
    """The wheel, unpacked. Building leaves files beside the source, so a copy is built."""
    python = next((each for each in ("/usr/bin/python3", sys.executable) if subprocess.run(
        [each, "-c", "import setuptools, wheel, pip"], stderr=subprocess.DEVNULL).returncode == 0), None)
    if not python:
        skip("no Python here has pip, setuptools and wheel; run scripts/install-deps.sh --tests")
    source = shutil.copytree(SOURCE, f"{work}/source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir",
                    f"{work}/wheels", source], check=True)
    wheel, = glob.glob(f"{work}/wheels/isogate-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(f"{work}/unpacked")
    return f"{work}/unpacked"


def check_contents(unpacked):
    expected = {os.path.basename(each) for each in glob.glob(f"{SOURCE}/src/isogate/*") if not each.endswith("__")}
    assert "py.typed" in expected and expected == set(os.listdir(f"{unpacked}/isogate")), os.listdir(f"{unpacked}/isogate")
    described, = glob.glob(f"{unpacked}/isogate-*.dist-info")
    with open(f"{described}/entry_points.txt") as file:
        assert "isogate = isogate.inspect" in file.read()
    with open(f"{described}/METADATA") as file:
        assert "License: Apache-2.0" in file.read()
    assert glob.glob(f"{described}/**/LICENSE", recursive=True)


def main():
    build = os.path.abspath(sys.argv[1])
    missing = [each for each in PACKAGES if not os.path.isdir(each)]
    python = PYTHON if os.path.exists(PYTHON) else sys.executable
    with tempfile.TemporaryDirectory(prefix="isogate-package-") as work:
        unpacked = build_wheel(work)
        check_contents(unpacked)
        print("the wheel holds what it should", flush=True)
        if missing:
            skip(f"no {', '.join(missing)}; run scripts/install-deps.sh --tests")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([python, "-m", "mypy", "--cache-dir", f"{build}/mypy"], check=True, cwd=SOURCE,
                       env={**environment, "PYTHONPATH": ":".join(PACKAGES)})
        subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", f"{HERE}/pytest.ini",
                        f"{HERE}/offline_cases.py"], check=True, cwd=HERE,
                       env={**environment, "PYTHONPATH": f"{unpacked}:{PACKAGES[0]}"})


if __name__ == "__main__":
    main()
