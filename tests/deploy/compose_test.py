#!/usr/bin/env python3
"""deploy/compose on a real Engine: compose_test.py BUILD_DIR; needs ISOGATE_TEST_DOCKER and docker-compose."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

from manifests import ROOT

BUILD = ""
ENGINE = os.environ.get("ISOGATE_TEST_DOCKER", "")
IMAGE = "isogate-test:gateway"
PROJECT = f"isogate-test-{os.getpid()}"


def run(*command, check=True, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def docker(*arguments, **options):
    return run("docker", "--host", ENGINE, *arguments, **options)


class Compose(unittest.TestCase):
    """The shipped files with the tests' images, and an agent beside the gateway."""

    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="isogate-compose-", dir="/var/tmp")
        os.chmod(self.work, 0o755)
        run(f"{ROOT}/deploy/image/build.sh", "--tag", IMAGE, BUILD, env={**os.environ, "DOCKER_HOST": ENGINE})
        self.key, digest = (line.split()[1] for line in run(f"{BUILD}/bin/isogate", "key", "new").splitlines())
        self.environment = {
            **os.environ, "DOCKER_HOST": ENGINE, "PORT": "0", "COMPOSE_PROJECT_NAME": PROJECT,
            "DOCKER_SOCKET": ENGINE.removeprefix("unix://"), "DOCKER_GID": str(os.stat(ENGINE.removeprefix("unix://")).st_gid),
            "ISOGATE_KEYS": json.dumps([{"name": "test", "tenant": "platform", "sha256": digest}])}
        self.edit("compose.yaml", self.with_agent)
        self.edit("isogate.yaml", self.with_test_image)

    def tearDown(self):
        self.compose("down", "--volumes", check=False)
        left = docker("volume", "ls", "-q", "--filter", f"label=io.isogate.instance={PROJECT}").split()
        if left:
            docker("volume", "rm", *left)
        docker("image", "rm", "--force", IMAGE, check=False)
        shutil.rmtree(self.work)

    def edit(self, name, change):
        with open(f"{ROOT}/deploy/compose/{name}") as shipped, open(f"{self.work}/{name}", "w") as file:
            yaml.safe_dump(change(yaml.safe_load(shipped)), file)

    def with_agent(self, compose):
        compose["services"]["isogate"]["image"] = IMAGE
        ask = 'curl -sSf -H "Authorization: Bearer $$KEY" -H "Content-Type: application/json" -d "$$BODY" $$URL/exec'
        compose["services"]["agent"] = {
            "image": "isogate-test:base", "command": ["sh", "-c", ask],
            "depends_on": {"isogate": {"condition": "service_healthy"}},
            "environment": {"URL": "http://isogate:9090", "KEY": self.key,
                            "BODY": json.dumps({"agent_id": "a", "command": "cat /proc/1/comm"})}}
        return compose

    def with_test_image(self, config):
        config["instance"] = PROJECT
        config["backends"][0]["config"]["image"] = "isogate-test:base"
        config["backends"][0]["limits"] = {"memory_mb": 64, "cpu_percent": 100, "max_pids": 64}
        return config

    def compose(self, *arguments, **options):
        return run("docker-compose", "--file", f"{self.work}/compose.yaml", *arguments, cwd=self.work, env=self.environment,
                   **options)

    def test_an_agent_starts_when_commands_can_be_run_and_runs_one(self):
        self.compose("up", "--detach")
        agent = self.compose("ps", "-q", "agent").strip()
        for _ in range(300):
            if json.loads(docker("inspect", "--format", "{{json .State.Status}}", agent)) == "exited":
                break
            time.sleep(0.1)
        said = docker("logs", agent)
        self.assertIn('"stdout":"isogate-runner\\n"', said, docker("logs", self.compose("ps", "-q", "isogate").strip()))
        self.assertIn('"isolation":"container"', said)
        self.assertIn('"outcome":"exited"', said)

    def test_the_gateway_itself_may_do_nothing(self):
        self.compose("up", "--detach", "isogate")
        gateway = self.compose("ps", "-q", "isogate").strip()
        pid = docker("inspect", "--format", "{{.State.Pid}}", gateway).strip()
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file)
        self.assertEqual(status["Uid"].split(), ["65532"] * 4)
        self.assertEqual(int(status["CapBnd"], 16), 0)
        self.assertEqual(status["NoNewPrivs"], "1")
        door = json.loads(docker("inspect", "--format", "{{json .NetworkSettings.Ports}}", gateway))["9090/tcp"]
        self.assertEqual([each["HostIp"] for each in door], ["127.0.0.1"])

    def test_without_keys_nothing_starts(self):
        del self.environment["ISOGATE_KEYS"]
        with self.assertRaisesRegex(AssertionError, "who may call"):
            self.compose("config")


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    if not ENGINE.startswith("unix://"):
        print("skipped: ISOGATE_TEST_DOCKER names no socket: tests/engines/docker.sh up prints one")
        sys.exit(77)
    if not shutil.which("docker-compose"):
        print("skipped: docker-compose is not installed")
        sys.exit(77)
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
