#!/usr/bin/env python3
"""What a limit of a sandbox's disk costs, over the same without one, in turns. As root.

    disk_limits.py BUILD_DIR [--backend namespace] [--rounds 400] [--sandboxes 20] [--files 1000000]

An exec of /bin/true, the first exec of a new sandbox, and a write of 4 KiB to a workspace of 10 files and of a million.
"""

import argparse
import http.client
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway  # noqa: E402

LIMITS = {
    "none": "disk_mb: 0",
    "directory": "workspace_fs: directory",
    "loop": "workspace_fs: loop, disk_mb: 1024",
    "tmpfs": "workspace_fs: tmpfs, disk_mb: 1024",
}


class Caller:
    def __init__(self, gateway):
        self.connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        self.headers = {"Authorization": "Bearer " + gateway.key, "Content-Type": "application/json"}

    def call(self, method, path, body=None):
        """The milliseconds it took, and the answer."""
        began = time.perf_counter()
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        said = answer.read()
        took = (time.perf_counter() - began) * 1000
        if answer.status not in (200, 201, 204):
            sys.exit(f"{method} {path}: {answer.status} {said.decode()}")
        return took, said

    def exec(self, agent, command=None):
        request = {"argv": ["/bin/true"]} if command is None else {"command": command}
        took, said = self.call("POST", "/exec", json.dumps({**request, "agent_id": agent, "timeout_sec": 1200}))
        said = json.loads(said)
        if said["outcome"] != "exited" or said["exit_code"] != 0:
            sys.exit(f"an exec failed: {said}")
        return took

    def disk(self, agent):
        rows = json.loads(self.call("GET", "/sandboxes")[1])["sandboxes"]
        return next(row["disk"] for row in rows if row["agent_id"] == agent)


def tell(what, figures, base):
    for name, took in figures.items():
        p50 = statistics.median(took)
        ratio = p50 / statistics.median(figures[base])
        print(f"{what:28} {name:10} p50 {p50:9.3f} ms   {ratio:6.3f} ×", flush=True)


def limits(build, backend, rounds, sandboxes):
    gateways = {}
    try:
        for name, config in LIMITS.items():
            gateways[name] = Gateway(build, f"    config: {{{config}}}\n", backend)
        callers = {name: Caller(gateway) for name, gateway in gateways.items()}
        for caller in callers.values():
            for _ in range(20):
                caller.exec("warm")
        took = {name: [] for name in callers}
        for _ in range(rounds):
            for name, caller in callers.items():
                took[name].append(caller.exec("warm"))
        tell("exec", took, "none")
        first = {name: [] for name in callers}
        for i in range(sandboxes):
            for name, caller in callers.items():
                first[name].append(caller.exec(f"new-{i}"))
        tell("first exec of a sandbox", first, "none")
        for name, caller in callers.items():
            for agent in ["warm"] + [f"new-{i}" for i in range(sandboxes)]:
                caller.call("DELETE", f"/sandboxes/{agent}?purge=true")
    finally:
        for gateway in gateways.values():
            gateway.stop()


def files(build, backend, rounds, count):
    gateway = Gateway(build, "    config: {disk_mb: 65536}\n    limits: best_effort\n", backend)
    try:
        caller = Caller(gateway)
        sizes = {"10": 10, str(count): count}
        for name, size in sizes.items():
            program = f"import os\nfor i in range({size}):\n  if i % 1000 == 0: os.makedirs(str(i), exist_ok=True)\n"
            program += "  open(str(i // 1000 * 1000) + '/f' + str(i), 'w').close()"
            caller.exec("files-" + name, f'/usr/bin/python3 -c "{program}"')
        for name in sizes:
            caller.call("POST", "/workspace/write", json.dumps({"path": "f", "content": "x", "agent_id": "files-" + name}))
        until = time.time() + 300
        while not all(caller.disk("files-" + name)["exact"] for name in sizes) and time.time() < until:
            time.sleep(1)
        took = {name: [] for name in sizes}
        for _ in range(rounds):
            for name in sizes:
                body = json.dumps({"path": "f", "content": "x" * 4096, "agent_id": "files-" + name})
                took[name].append(caller.call("POST", "/workspace/write", body)[0])
        tell("a write, files there", took, "10")
        for name in sizes:
            print(f"counted of files-{name}: {caller.disk('files-' + name)}")
            caller.call("DELETE", f"/sandboxes/files-{name}?purge=true")
    finally:
        gateway.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--backend", default="namespace")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--sandboxes", type=int, default=20)
    parser.add_argument("--files", type=int, default=1000000)
    given = parser.parse_args()
    build = os.path.abspath(given.build)
    limits(build, given.backend, given.rounds, given.sandboxes)
    files(build, given.backend, given.rounds, given.files)


if __name__ == "__main__":
    main()
