"""The programs in the pages of docs/, and the output that the pages show."""

import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BACKEND

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def run_page(page, directory, *command):
    """Runs the last program of the page, `hello.py` for `command`; what it printed, and the lines that it should print."""
    if BACKEND != "namespace":
        pytest.skip("what the page shows was printed on the backend namespace")
    text = (DOCS / page).read_text(encoding="utf-8")
    (directory / "hello.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[-1], encoding="utf-8")
    console = re.findall(r"```console\n(.*?)```", text, re.S)[-1]
    expected = [line for line in console.splitlines() if line.strip("…") and not line.startswith("$")]
    done = subprocess.run([sys.executable, "-W", "ignore", *command], cwd=directory, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, expected
