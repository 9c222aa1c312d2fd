#!/usr/bin/env python3
"""deploy/sandbox-image, the image that agents begin with: built by its own script on a real Engine, and used by agents of a
real gateway. sandbox_image_test.py BUILD_DIR docker|podman|k8s; needs ISOGATE_TEST_DOCKER, _PODMAN or _KUBERNETES."""

import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import yaml

from manifests import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from served import SDKS

BUILD = BACKEND = ENGINE = ""
IMAGE = "isogate-test:starter"
FOLDER = f"{ROOT}/deploy/sandbox-image"
HOME = "/workspace"


def run(*command, check=True, **options):
    done = subprocess.run(command, capture_output=True, **{"text": True, "timeout": 120, **options})
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def archive():
    """The image as the script builds it, kept until the folder changes; built if it is missing."""
    digest = hashlib.sha256()
    for name in sorted(glob.glob(f"{FOLDER}/*")):
        with open(name, "rb") as file:
            digest.update(file.read())
    cache = os.environ.get("ISOGATE_DOCKER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "isogate-docker")
    kept = f"{cache}/starter-{digest.hexdigest()[:16]}.tar"
    if os.path.exists(kept):
        return kept
    if BACKEND != "docker":
        skip("the image is not built: that is done where docker is tested")
    if "CI" in os.environ and "ISOGATE_TEST_LONG" not in os.environ:
        skip("the image takes minutes to build, and CI is set: ISOGATE_TEST_LONG=1 runs it")
    if os.geteuid() != 0:
        skip("only root can build the image without a registry")
    engine = {**os.environ, "DOCKER_HOST": ENGINE}
    said = run(f"{FOLDER}/build.sh", "--debootstrap", "--tag", IMAGE, env=engine, timeout=1500).stdout
    settings = yaml.safe_load(said[said.index("backends:"):])
    if settings != {"backends": [{"name": "docker", "config": {"image": IMAGE}}]}:
        raise AssertionError(f"the settings that are printed: {settings}")
    os.makedirs(cache, exist_ok=True)
    run("docker", "save", "--output", f"{kept}.new", IMAGE, env=engine)
    for old in glob.glob(f"{cache}/starter-*.tar"):
        os.unlink(old)
    os.rename(f"{kept}.new", kept)
    return kept


class Engine:
    """The backend's part of the configuration, and what gives its engine the image."""

    def __init__(self, _work):
        self.environment = {"DOCKER_HOST": ENGINE}
        run("docker", "--host", ENGINE, "load", "--input", archive())
        self.config = {"image": IMAGE, "memory_mb": 512, "mounts": self.node()}

    def node(self):
        """Node and npm, if they could be installed: the image has none."""
        modules = os.path.join(SDKS, "npm-node-22", "node_modules")
        if not os.path.isdir(modules):
            return []
        return [{"source": os.path.realpath(f"{modules}/node/bin/node"), "target": "/usr/local/bin/node"},
                {"source": f"{modules}/npm", "target": "/opt/npm"}]

    def forget(self):
        run("docker", "--host", ENGINE, "image", "rm", "--force", IMAGE, check=False)


class Cluster:
    def __init__(self, work):
        from cluster import Cluster as OnNode
        self.node = OnNode(BUILD)
        self.environment = {}
        self.containers = ("ctr", "--address", f"{self.node.directory}/containerd.sock", "--namespace", "k8s.io", "images")
        run(*self.containers, "import", archive())
        account = shutil.copyfile(f"{self.node.directory}/kubeconfig-isogate", f"{work}/kubeconfig")
        os.chmod(account, 0o644)  # the backend's host is another user
        self.config = {
            "kubeconfig": account, "runner_image": self.node.runner_image, "image": IMAGE,
            "pull_policy": "Never", "memory_request_mb": 16, "cpu_request": 0.001, "ephemeral_mb": 256, "workspace_mb": 64}

    def forget(self):
        run(*self.containers, "rm", f"docker.io/library/{IMAGE}", check=False)


def setUpModule():
    Agent.work = tempfile.TemporaryDirectory(prefix="isogate-starter-", dir="/var/tmp")
    os.chmod(Agent.work.name, 0o755)
    Agent.engine = (Cluster if BACKEND == "k8s" else Engine)(Agent.work.name)
    Agent.gateway = Gateway(Agent.work.name, Agent.engine)


def tearDownModule():
    Agent.gateway.stop()
    Agent.engine.forget()
    Agent.work.cleanup()


class Gateway:
    def __init__(self, work, engine):
        self.state = f"{work}/state"
        settings = {"instance": f"starter-{os.getpid()}", "state_dir": self.state, "plugin_dir": f"{BUILD}/plugins",
                    "listen": ["127.0.0.1:0", f"unix:{self.state}/isogate.sock"], "exec": {"max_timeout_sec": 300},
                    "backends": [{"name": "k8s" if BACKEND == "k8s" else "docker", "config": engine.config}]}
        with open(f"{work}/isogate.yaml", "w") as file:
            yaml.safe_dump(settings, file)
        self.log = f"{work}/log"
        with open(self.log, "w") as log:
            self.program = subprocess.Popen([f"{BUILD}/bin/isogate", "serve", "--config", f"{work}/isogate.yaml"], stderr=log,
                                            env={**os.environ, **engine.environment})
        until = time.monotonic() + 120
        while (first := self.client("exec", "--agent", "first", "-c", "true")).returncode != 0:
            if self.program.poll() is not None or time.monotonic() > until:
                self.stop()
                with open(self.log) as file:
                    raise AssertionError(f"the gateway does not serve: {first.stderr}{file.read()}")
            time.sleep(0.2)
        self.client("sandbox", "rm", "--purge", "first")

    def client(self, *arguments, **options):
        return run(f"{BUILD}/bin/isogate", *arguments, "--state-dir", self.state, check=False, timeout=360, **options)

    def stop(self):
        for row in json.loads(self.client("sandbox", "ls", "--json").stdout or "{}").get("sandboxes", []):
            self.client("sandbox", "rm", "--purge", row["agent_id"])
        self.program.terminate()
        self.program.wait(60)


def wheel():
    """tiny 1.0, with a module and a program."""
    of = "tiny-1.0.dist-info"
    files = {"tiny.py": "def main():\n    print('tiny of a wheel')\n",
             f"{of}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
             f"{of}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             f"{of}/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n"}
    files[f"{of}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{of}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return packed.getvalue()


class Agent(unittest.TestCase):
    engine = work = gateway = None

    def setUp(self):
        self.name = self.id().rsplit(".", 1)[1].replace("_", "-")[:60]

    def tearDown(self):
        self.gateway.client("sandbox", "rm", "--purge", self.name)

    def exec(self, command):
        """Its exit code and all its output. A command that takes longer than a minute is killed: 124."""
        done = self.gateway.client("exec", "--agent", self.name, "--timeout", "60", "-c", f"exec 2>&1; {command}")
        return done.returncode, done.stdout + done.stderr

    def out(self, command):
        code, said = self.exec(command)
        self.assertEqual(code, 0, f"{command}: {said}")
        return said

    def put(self, path, content):
        done = run(f"{BUILD}/bin/isogate", "write", "--state-dir", self.gateway.state, "--agent", self.name, path,
                   input=content if isinstance(content, bytes) else content.encode(), text=False)
        self.assertEqual(done.returncode, 0)

    def next_container(self):
        """Ends the container, so that the next call gets a new one on the same workspace."""
        self.out("touch /tmp/of_this_one")
        self.assertEqual(self.gateway.client("sandbox", "rm", self.name).returncode, 0)
        self.assertEqual(self.exec("test -e /tmp/of_this_one")[0], 1, "it is the same container")

    # ---- the image ----

    def test_the_user_has_a_name_whatever_the_uid(self):
        self.assertGreaterEqual(int(self.out("id -u")), 10000)
        self.assertEqual(self.out("whoami; id -un; id -gn; echo $USER"), "agent\n" * 4)
        self.assertEqual(self.out("python3 -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)'"), f"{HOME}\n")

    def test_git_a_compiler_and_python_work(self):
        self.out("git init -q . && git -c user.name=me -c user.email=me@here commit -q --allow-empty -m 'of me'")
        self.assertEqual(self.out("git log --format=%s"), "of me\n")
        self.put("hello.c", '#include <stdio.h>\nint main() { puts("compiled"); }\n')
        self.put("hello.cc", '#include <iostream>\nint main() { std::cout << "compiled, too\\n"; }\n')
        self.assertEqual(self.out("cc -o c hello.c && ./c && c++ -o cc hello.cc && ./cc"), "compiled\ncompiled, too\n")
        self.assertEqual(self.out("python --version"), self.out("python3 --version"))

    def test_home_is_the_workspace_and_nothing_else_but_tmp_can_be_written(self):
        self.assertEqual(self.out("cd ~user && pwd -P"), f"{HOME}\n")
        self.assertEqual(self.out("echo ~ $HOME; touch ~/file && ls $WORKSPACE"), f"{HOME} {HOME}\nfile\n")
        self.assertIn("Read-only file system", self.exec("stat -c %a /var/tmp; touch /var/tmp/file")[1])
        self.assertEqual(self.out("touch /tmp/file && echo written"), "written\n")

    # ---- packages ----

    def test_what_pip_installs_stays_with_the_workspace(self):
        self.put("tiny-1.0-py3-none-any.whl", wheel())
        self.put("source/setup.py", "from setuptools import setup\nsetup(name='small', version='1.0', py_modules=['small'])\n")
        self.put("source/small.py", "said = 'small of a source'\n")
        for what in ("tiny-1.0-py3-none-any.whl", "--no-build-isolation ./source"):
            self.out(f"pip install --user --no-index {what}")
        self.out("mkdir -p ~/.cache && echo cached > ~/.cache/kept")
        for _ in range(2):
            self.assertEqual(self.out("python3 -c 'import small, tiny; print(small.said, tiny.__file__)'"),
                             f"small of a source {HOME}/.local/lib/python3.11/site-packages/tiny.py\n")
            self.assertEqual(self.out("~/.local/bin/tiny; cat ~/.cache/kept"), "tiny of a wheel\ncached\n")
            self.next_container()
        if BACKEND != "k8s":  # where the image's own environment is not known
            self.assertEqual(self.out("tiny"), "tiny of a wheel\n")

    def test_pip_without_user_goes_to_the_same_place(self):
        self.put("tiny-1.0-py3-none-any.whl", wheel())
        self.assertIn("Defaulting to user installation", self.out("pip install --no-index ./tiny-1.0-py3-none-any.whl"))
        self.assertEqual(self.out("ls ~/.local/bin"), "tiny\n")

    def test_the_systems_packages_cannot_be_changed(self):
        """Refused at once, with the reason; nothing waits for a lock or for a network."""
        why = "Permission denied|Read-only file system|requires superuser privilege"
        for command in ("apt-get update", "apt-get install -y hello", "apt-get remove -y git", "dpkg --remove git",
                        "pip install --no-index --target /usr/lib/python3/dist-packages ./tiny-1.0-py3-none-any.whl"):
            self.put("tiny-1.0-py3-none-any.whl", wheel())
            code, said = self.exec(command)
            self.assertNotIn(code, (0, 124, 127), f"{command}: {said}")
            self.assertRegex(said, why, command)
        self.assertEqual(self.out("git --version >/dev/null && echo there"), "there\n")

    def test_what_is_elsewhere_is_not_waited_for(self):
        for command in ("pip install --user nothing-of-that-name", "pip download nothing-of-that-name"):
            code, said = self.exec(command)
            self.assertNotIn(code, (0, 124, 127), f"{command}: {said}")
            self.assertIn("nothing-of-that-name", said)

    def test_what_npm_installs_stays_with_the_workspace(self):
        if not self.engine.config.get("mounts"):
            self.skipTest("no node: neither the image nor this backend has one (scripts/install-deps.sh --tests)")
        npm = "node /opt/npm/bin/npm-cli.js --offline --no-audit --no-fund"
        self.put("small/package.json", json.dumps({"name": "small", "version": "1.0.0", "main": "it.js", "bin": "it.js"}))
        self.put("small/it.js", "#!/usr/bin/env node\nconsole.log('small of npm')\n")
        self.put("app/package.json", json.dumps({"name": "app", "version": "1.0.0"}))
        self.out(f"cd small && {npm} pack && cd ../app && {npm} install ../small/small-1.0.0.tgz")
        code, said = self.exec(f"{npm} install --global ./small/small-1.0.0.tgz")
        self.assertNotIn(code, (0, 124, 127), said)
        self.assertIn("mkdir '/usr/local/lib/node_modules'", said)
        self.out(f"{npm} install --global --prefix ~/.local ./small/small-1.0.0.tgz")
        for _ in range(2):
            self.assertEqual(self.out("cd app && node -e 'require(\"small\")'; ~/.local/bin/small"), "small of npm\n" * 2)
            self.next_container()


if __name__ == "__main__":
    BUILD, BACKEND = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    if BACKEND != "k8s":
        ENGINE = os.environ.get(f"ISOGATE_TEST_{BACKEND.upper()}", "")
        if not ENGINE:
            skip(f"ISOGATE_TEST_{BACKEND.upper()} names no Engine: tests/engines/{BACKEND}.sh up prints one")
        if not shutil.which("docker"):
            skip("the program docker is not installed")
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
