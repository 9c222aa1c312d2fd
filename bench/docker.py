#!/usr/bin/env python3
"""The backend docker beside a bare spawn, an exec of the Engine's own API, and the docker command line; figures of
the same run, interleaved. Root, and an Engine with the image isogate-test:base (tests/engines/docker.sh up).

    docker.py BUILD_DIR ENGINE [--scale N] [--only PART]      ENGINE: unix:///path; N divides the work
"""

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from endurance import restarted  # noqa: E402
from run import TRUE, Gateway, exec_http, median  # noqa: E402

IMAGE = "isogate-test:base"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def gateway_of(build, engine, **config):
    config = {"host": engine, "image": IMAGE, "pids": 1024, **config}
    return Gateway(build, f"    config: {json.dumps(config)}\n", "docker")


def docker(engine, *arguments, **options):
    return subprocess.run(["docker", "-H", engine, *arguments], check=True, capture_output=True, text=True, **options)


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def engine_exec(path, container):
    """An exec of the Engine itself: created, started, read to its end."""
    api = UnixConnection(path)
    head = {"Content-Type": "application/json"}
    body = json.dumps({"AttachStdout": True, "AttachStderr": True, "Cmd": ["/bin/true"]})
    api.request("POST", f"/containers/{container}/exec", body, head)
    made = json.loads(api.getresponse().read())["Id"]
    api.request("POST", f"/exec/{made}/start", '{"Detach":false,"Tty":false}', head)
    api.getresponse().read()
    api.close()


def engine_itself(engine, rounds):
    """p50 in ms of the Engine's API, and of its command line, each exec in a container that runs."""
    container = docker(engine, "run", "-d", "--network", "none", IMAGE, "sleep", "600").stdout.strip()
    try:
        rows = {"api_ms": [], "cli_ms": []}
        for _ in range(rounds):
            rows["api_ms"].append(timed(lambda: engine_exec(engine[len("unix://"):], container)))
            rows["cli_ms"].append(timed(lambda: docker(engine, "exec", container, "/bin/true")))
        return {name: round(median(values), 2) for name, values in rows.items()}
    finally:
        docker(engine, "rm", "-f", container)


def latency(build, engine, scale):
    result = {}
    for transport, rounds in (("socket", 2000), ("stream", 2000), ("exec", 60)):
        gateway = gateway_of(build, engine, transport=transport)
        result[transport] = exec_http(
            build, "latency", gateway.port, gateway.key, TRUE, max(rounds // scale, 20), 0, "/bin/true"
        )
        gateway.stop()
    own = engine_itself(engine, max(40 // scale, 5))
    ours = result["socket"]["http_p50_us"] / 1000
    return {**result, "engine": own, "over_engine_api": round(ours / own["api_ms"], 4),
            "over_docker_cli": round(ours / own["cli_ms"], 4)}


def throughput(build, engine, scale):
    gateway = gateway_of(build, engine, cpus=0)  # the bare spawns have all processors, too
    result = {
        str(clients): exec_http(build, "throughput", gateway.port, gateway.key, TRUE, clients, 3 / scale, "/bin/true")
        for clients in (1, 16, 64)
    }
    gateway.stop()
    return result


def cold(build, engine, rounds):
    """The first exec of a new agent, over `docker run` of the same with the same limits."""
    gateway = gateway_of(build, engine)
    body = {"argv": ["/bin/true"]}
    ours, theirs = [], []
    for nth in range(rounds):
        asks = json.dumps({**body, "agent_id": f"cold-{nth}"})
        ours.append(timed(lambda: gateway.curl("-f", "-H", "Content-Type: application/json", "-d", asks,
                                               gateway.url("/exec"))))
        theirs.append(timed(lambda: docker(
            engine, "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--memory", "512m",
            "--cpus", "1", "--pids-limit", "256", "--user", "1000", IMAGE, "/bin/true")))
    gateway.stop()
    return {"first_exec_ms": round(median(ours), 1), "docker_run_ms": round(median(theirs), 1),
            "ratio": round(median(ours) / median(theirs), 3)}


def first_exec(gateway, agent):
    """ms of one exec over an open connection."""
    door = http.client.HTTPConnection("127.0.0.1", gateway.port)
    door.connect()
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {gateway.key}"}

    def ask():
        door.request("POST", "/exec", json.dumps({"argv": ["/bin/true"], "agent_id": agent}), head)
        answer = json.loads(door.getresponse().read())
        if answer.get("exit_code") != 0:
            sys.exit(f"{agent}: {answer}")

    took = timed(ask)
    door.close()
    return took


def wait_for(gateway, text):
    for _ in range(600):
        if text.encode() in gateway.curl(gateway.url("/backends")):
            return
        time.sleep(0.1)
    sys.exit(f"not within a minute: {text}")


def warm(build, engine, rounds):
    """The first exec of a new agent from the pool, over one that creates everything, and over a second exec."""
    pool, plain = gateway_of(build, engine, warm_pool=4), gateway_of(build, engine)
    rows = {"claim_ms": [], "made_ms": [], "second_ms": []}
    for nth in range(rounds):
        wait_for(pool, "4 of 4 sandboxes ready")
        rows["claim_ms"].append(first_exec(pool, f"warm-{nth}"))
        rows["second_ms"].append(first_exec(pool, f"warm-{nth}"))
        rows["made_ms"].append(first_exec(plain, f"made-{nth}"))
    pool.stop()
    plain.stop()
    return {name: round(median(values), 1) for name, values in rows.items()} | {"slowest_claim": max(rows["claim_ms"])}


def restart(build, engine, count):
    """A gateway that is killed with live containers: until its successor is ready, and each is re-attached."""
    gateway = gateway_of(build, engine)
    agents = [f"agent-{nth}" for nth in range(count)]
    for agent in agents:
        first_exec(gateway, agent)
    before = len(docker(engine, "ps", "-q").stdout.split())
    ready = restarted(gateway, signal.SIGKILL)
    taken = [first_exec(gateway, agent) for agent in agents]
    result = {"containers": before, "ready_s": ready["ready_sec"], "first_exec_after_ms": round(median(taken), 1),
              "all_s": round(sum(taken) / 1000, 2), "same": len(docker(engine, "ps", "-q").stdout.split()) == before}
    gateway.stop()
    return result


def at_hand(file):
    """What was written before is on the disk, and there are free pages that the machine has touched lately: a virtual
    machine whose host takes back what is free gets the next ones at a fifth of their speed."""
    os.sync()
    copy = file + ".copy"
    subprocess.run(["cp", file, copy], check=True)
    os.unlink(copy)


def bytes_of(build, engine, size):
    """MiB/s: out of stdout as a stream of events, a file up and down, and the same file by `docker cp`."""
    gateway = gateway_of(build, engine, memory_mb=0, cpus=0)
    here = os.path.join(gateway.dir, "file")
    subprocess.run(f"head -c {size} /dev/zero > {here}", shell=True, check=True)
    auth = ["-sS", "-f", "-H", f"Authorization: Bearer {gateway.key}"]
    url = gateway.url("/workspace/files/a/file")
    command = json.dumps({"command": f"head -c {size} /dev/zero | tr '\\0' a", "agent_id": "a", "timeout_sec": 300})
    rows = {}
    gateway.curl("-f", "-H", "Content-Type: application/json", "-d", '{"argv":["/bin/true"],"agent_id":"a"}',
                 gateway.url("/exec"))
    container = docker(engine, "run", "-d", "--network", "none", IMAGE, "sleep", "600").stdout.strip()
    null = {"stdout": subprocess.DEVNULL, "check": True}
    works = {
        "stdout": lambda: subprocess.run(
            ["curl", *auth, "-H", "Content-Type: application/json", "-d", command, gateway.url("/exec-stream")],
            **null),
        "up": lambda: subprocess.run(["curl", *auth, "-T", here, url], **null),
        "down": lambda: subprocess.run(["curl", *auth, "-o", "/dev/null", url], **null),
        "docker_cp_up": lambda: docker(engine, "cp", here, f"{container}:/file"),
        "docker_cp_down": lambda: subprocess.run(
            ["sh", "-c", f"docker -H {engine} cp {container}:/file - > /dev/null"], check=True),
    }
    try:
        for _ in range(5):
            for name, work in works.items():
                at_hand(here)
                rows.setdefault(name, []).append(timed(work))
    finally:
        docker(engine, "rm", "-f", container)
        gateway.stop()
    speeds = {name: round(size / 1048576 / (median(ms) / 1000)) for name, ms in rows.items()}
    return {**speeds, "up_over_cp": round(speeds["up"] / speeds["docker_cp_up"], 2),
            "down_over_cp": round(speeds["down"] / speeds["docker_cp_down"], 2)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("engine")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--only", default="", help="of the parts below, the one of this name")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    for name, work in (
        ("latency", lambda: latency(build, options.engine, options.scale)),
        ("throughput", lambda: throughput(build, options.engine, options.scale)),
        ("cold", lambda: cold(build, options.engine, max(20 // options.scale, 5))),
        ("warm pool", lambda: warm(build, options.engine, max(20 // options.scale, 5))),
        ("restart", lambda: restart(build, options.engine, max(100 // options.scale, 5))),
        ("bytes", lambda: bytes_of(build, options.engine, (1 << 30) // options.scale)),
    ):
        if options.only not in ("", name):
            continue
        print(f"\n== {name}", flush=True)
        print(json.dumps(work(), indent=2), flush=True)


if __name__ == "__main__":
    main()
