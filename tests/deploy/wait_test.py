#!/usr/bin/env python3
"""deploy/k8s/wait-for-sidecar.sh: what it waits for, with curl and with wget."""

import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from manifests import ROOT, shipped

SCRIPT = f"{ROOT}/deploy/k8s/wait-for-sidecar.sh"


class Health(http.server.BaseHTTPRequestHandler):
    """503 from /readyz until `ready_at`."""

    def do_GET(self):
        ready = self.path == "/readyz" and time.monotonic() >= self.server.ready_at
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class WaitForSidecar(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
        self.server.ready_at = 0
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.tools = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.tools.cleanup()

    def path_with(self, *programs):
        for name in programs:
            os.symlink(shutil.which(name), f"{self.tools.name}/{name}")
        return self.tools.name

    def run_script(self, *argv, path=None, **environment):
        environment = {"PATH": path or os.environ["PATH"], "http_proxy": "http://127.0.0.1:1", **environment}
        return subprocess.run(["/bin/sh", SCRIPT, *argv], env=environment, capture_output=True, text=True, timeout=60)

    def test_the_manifest_carries_it(self):
        config = next(each for each in shipped("sidecar.yaml") if each["kind"] == "ConfigMap")
        with open(SCRIPT) as file:
            self.assertEqual(config["data"]["wait-for-sidecar.sh"], file.read())

    def test_without_the_variable_it_is_the_program(self):
        done = self.run_script("printf", "%s.", "a b", "c")
        self.assertEqual((done.returncode, done.stdout), (0, "a b.c."), done.stderr)

    def test_it_waits_until_commands_can_be_run(self):
        path = self.path_with("date", "sleep", "echo")
        for program in ("curl", "wget"):
            self.path_with(program)
            self.server.ready_at = time.monotonic() + 1.5
            done = self.run_script("echo", "started", path=path, WAIT_FOR_SIDECAR=self.address)
            self.assertEqual((done.returncode, done.stdout), (0, "started\n"), done.stderr)
            self.assertGreaterEqual(time.monotonic(), self.server.ready_at)
            os.unlink(f"{path}/{program}")

    def test_it_starts_nothing_when_that_takes_too_long(self):
        self.server.ready_at = time.monotonic() + 3600
        for address in (self.address, "127.0.0.1:1"):
            done = self.run_script("echo", "started", WAIT_FOR_SIDECAR=address, WAIT_FOR_SIDECAR_TIMEOUT="1")
            self.assertEqual((done.returncode, done.stdout), (69, ""))
            self.assertIn(f"{address} was not ready within 1 s", done.stderr)

    def test_it_says_what_it_lacks(self):
        path = self.path_with("date", "sleep")
        done = self.run_script("echo", path=path, WAIT_FOR_SIDECAR=self.address, WAIT_FOR_SIDECAR_TIMEOUT="0")
        self.assertEqual(done.returncode, 69)
        self.assertIn("neither curl nor wget", done.stderr)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
