#!/usr/bin/env python3
"""One tenant's crowd, and the time of another tenant's exec with it, over that without it, in turns.

    neighbours.py BUILD_DIR [--backend namespace] [--clients 64 800 4000] [--seconds 8] [--rounds 3]

The crowd is wrk, on the same processors: each client sends its next exec when the last is answered.
"""

import argparse
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway  # noqa: E402

KEYS = {tenant: tenant * 64 for tenant in "ab"}
LUA = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer %s"
request = function() return wrk.format(nil, "/exec", nil,
  '{"argv":["/bin/true"],"agent_id":"agent' .. math.random(%d) .. '"}') end
done = function(summary, latency, requests) print("answers", summary.requests, "refused", summary.errors.status) end
"""


def execs(port, seconds, count):
    """The times of consecutive execs, in ms."""
    asker = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Authorization": "Bearer " + KEYS["b"], "Content-Type": "application/json"}
    took = []
    until = time.perf_counter() + seconds
    while len(took) < count and time.perf_counter() < until:
        began = time.perf_counter()
        asker.request("POST", "/exec", '{"argv":["/bin/true"],"agent_id":"mine"}', headers)
        answer = asker.getresponse()
        said = json.loads(answer.read())
        if answer.status != 200 or said["outcome"] != "exited":
            sys.exit(f"the neighbour's exec failed: {answer.status} {said}")
        took.append((time.perf_counter() - began) * 1000)
    return took


def crowd(port, clients, seconds, agents):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA % (KEYS["a"], agents))
        script.flush()
        wrk = subprocess.Popen(["wrk", "-t", "1", "-c", str(clients), "-d", f"{seconds}s", "--timeout", "60s",
                                "-s", script.name, f"http://127.0.0.1:{port}/"], stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        took = execs(port, seconds - 3, 500)
        said = wrk.communicate()[0]
    answers, refused = next((line.split()[1::2] for line in said.splitlines() if line.startswith("answers")), (0, 0))
    return took, int(answers) - int(refused), int(refused)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 800, 4000])
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    keys = "keys:\n" + "".join(
        f"  - {{name: {name}, tenant: {name}, sha256: {hashlib.sha256(key.encode()).hexdigest()}}}\n"
        for name, key in KEYS.items())
    gateway = Gateway(os.path.abspath(asked.build), keys, asked.backend)
    execs(gateway.port, 10, 50)
    quiet, beside = [], {clients: [] for clients in asked.clients}
    counted = {clients: [0, 0] for clients in asked.clients}
    for _ in range(asked.rounds):
        quiet += execs(gateway.port, 3, 500)
        for clients in asked.clients:
            took, served, refused = crowd(gateway.port, clients, asked.seconds, asked.agents)
            beside[clients] += took
            counted[clients][0] += served
            counted[clients][1] += refused
    gateway.stop()
    usual = statistics.median(quiet)
    result = {"backend": asked.backend, "quiet_p50_ms": round(usual, 2)}
    for clients, took in beside.items():
        took.sort()
        served, refused = counted[clients]
        per_sec = asked.seconds * asked.rounds
        result[f"{clients} clients"] = {
            "execs": len(took), "p50_ratio": round(statistics.median(took) / usual, 2),
            "p99_ms": round(took[int(len(took) * 0.99)], 1), "crowd_served_per_sec": round(served / per_sec),
            "crowd_refused_per_sec": round(refused / per_sec)}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
