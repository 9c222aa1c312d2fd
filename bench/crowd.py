#!/usr/bin/env python3
"""Crowds of clients against one gateway with the backend local: figures of the same run, each beside what the
same questions cost without the crowd.

    crowd.py BUILD_DIR [--scale N]     N divides the crowds (10,000 slow clients, 10,000 idle, 2,500 streams)
"""

import argparse
import json
import os
import resource
import selectors
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway, status  # noqa: E402


def connect(port, nth):
    # Many source addresses: one does not have enough ports for all crowds in a row.
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((f"127.0.{nth // 4000 + 1}.1", 0))
    one.connect(("127.0.0.1", port))
    return one


def asked(port, nth):
    # A connection that never asks is closed at the header's deadline; this one stays idle between requests.
    one = connect(port, nth)
    one.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    if not one.recv(4096).startswith(b"HTTP/1.1 200"):
        sys.exit("GET /livez failed")
    return one


def cpu(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def probe(port, count):
    """p50 and p99 of GET /livez on one connection, in ms."""
    asker = socket.create_connection(("127.0.0.1", port))
    took = []
    for _ in range(count):
        began = time.perf_counter()
        asker.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        if not asker.recv(4096).startswith(b"HTTP/1.1 200"):
            sys.exit("GET /livez failed under load")
        took.append((time.perf_counter() - began) * 1000)
    asker.close()
    took.sort()
    return {"p50_ms": round(statistics.median(took), 3), "p99_ms": round(took[int(len(took) * 0.99)], 3)}


def measured(gateway, work, count, probes):
    """What the front uses per client while `work` keeps them, and the latency of others."""
    front = gateway.children()["front"]
    before = status(front, "VmRSS")
    held = work()
    time.sleep(2)
    rss = status(front, "VmRSS")
    began, used = time.time(), cpu(front)
    time.sleep(5)
    idle = (cpu(front) - used) / (time.time() - began)
    result = {
        "clients": count,
        "kib_each": round((rss - before) / count, 2),
        "idle_cpu_percent": round(idle * 100, 2),
        **probe(gateway.port, probes),
    }
    return result, held


def slow(gateway, count, probes):
    """Each sends its header byte by byte, one a second; all must be closed within the header's total time."""
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"x" * 60
    clients = {connect(gateway.port, i): 0 for i in range(count)}
    began, took, asks = time.time(), [], []
    while clients and time.time() - began < 30:
        tick = time.time()
        with selectors.DefaultSelector() as ready:
            for each in clients:
                ready.register(each, selectors.EVENT_READ)
            for key, _ in ready.select(0):
                said = key.fileobj.recv(4096)
                if said and not said.startswith(b"HTTP/1.1 408"):
                    sys.exit(f"a slow client was answered {said[:100]}")
                key.fileobj.close()
                del clients[key.fileobj]
                took.append(time.time() - began)
        for each in list(clients):
            try:
                each.send(head[clients[each]: clients[each] + 1])
                clients[each] = min(clients[each] + 1, len(head) - 1)
            except OSError:
                pass
        asks.append(probe(gateway.port, probes)["p99_ms"])
        time.sleep(max(0, 1 - (time.time() - tick)))
    return {
        "clients": count,
        "left_after_30_s": len(clients),
        "last_gone_after_s": round(max(took), 1) if took else None,
        "others_p99_ms": round(statistics.median(asks), 3),
    }


# A backend host accepts as many execs as its descriptors allow (16 each): with a hard limit of 20,000, 2,500 streams
# need three of them.
BACKENDS = ["local", "second", "third"]
SETTINGS = "".join(f"  - {{name: {name}, plugin: local}}\n" for name in BACKENDS[1:]) + (
    "limits: {max_execs: 5000, max_execs_per_sandbox: 5000}\n"
)


def silent_streams(gateway, count):
    def request(nth):
        backend = BACKENDS[nth % len(BACKENDS)]
        asks = {"argv": ["/bin/sleep", "300"], "timeout_sec": 310, "agent_id": f"on-{backend}", "backend": backend}
        body = json.dumps(asks)
        return (
            f"POST /exec-stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    clients = []
    for first in range(0, count, 100):
        batch = [connect(gateway.port, i) for i in range(first, min(first + 100, count))]
        for nth, each in enumerate(batch):
            each.settimeout(60)
            each.sendall(request(first + nth))
        for each in batch:
            answer = each.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200"):
                sys.exit(f"a stream after {len(clients)} was answered {answer}")
        clients += batch
    return clients


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--scale", type=int, default=1)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many, streams, probes = 10000 // options.scale, 2500 // options.scale, 1000
    gateway = Gateway(build, SETTINGS)
    try:
        result = {"alone": probe(gateway.port, probes)}
        result["slow"] = slow(gateway, many, 100)
        result["idle"], held = measured(
            gateway, lambda: [asked(gateway.port, i) for i in range(many)], many, probes
        )
        for each in held[many - streams:]:
            each.close()
        idle = held[: many - streams]
        time.sleep(1)
        result["silent_streams_beside_idle"], held = measured(
            gateway, lambda: silent_streams(gateway, streams), streams, probes
        )
        result["open_connections"] = len(idle) + len(held)
        front = gateway.children()["front"]
        result["front_rss_mib"] = round(status(front, "VmRSS") / 1024, 1)
        held += idle
        for each in held:
            each.close()
    finally:
        gateway.stop()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
