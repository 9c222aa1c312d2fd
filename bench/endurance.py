#!/usr/bin/env python3
"""What has to stay flat: execs among 10 and among 1,000 agents, minutes of load, thousands of timeouts, and a
restart with 1,000 sandboxes. One gateway with the backend local; figures of the same run.

    endurance.py BUILD_DIR [--scale N]     N divides the work
"""

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway, median, status  # noqa: E402


class Client:
    """One keep-alive connection."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)

    def exec(self, argv, agent, **more):
        """The result, and how long it took in ms."""
        body = json.dumps({"argv": argv, "agent_id": agent, **more})
        began = time.perf_counter()
        self.connection.request(
            "POST", "/exec", body,
            {"Authorization": f"Bearer {self.gateway.key}", "Content-Type": "application/json"},
        )
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"exec was answered {answer.status} {text[:300]}")
        return json.loads(text), (time.perf_counter() - began) * 1000


def among_agents(gateway, rounds):
    """p50 of exec /bin/true when the agent is one of 10, and when it is one of 1,000; interleaved."""
    client, took = Client(gateway), {10: [], 1000: []}
    for agent in range(1000):
        client.exec(["/bin/true"], f"agent-{agent}")
    for _ in range(rounds):
        for agents, times in took.items():
            times.append(client.exec(["/bin/true"], f"agent-{random.randrange(agents)}")[1])
    few, many = median(took[10]), median(took[1000])
    return {"p50_ms_of_10": round(few, 3), "p50_ms_of_1000": round(many, 3), "growth": round(many / few, 3)}


def state_of(gateway):
    return {
        name: {
            "rss_kib": status(pid, "VmRSS"),
            "threads": status(pid, "Threads"),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        }
        for name, pid in gateway.children().items()
    }


def crowd(count, work):
    threads = [threading.Thread(target=work, args=(nth,)) for nth in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def under_load(gateway, seconds):
    """64 clients; p99 over p50, and the growth between the first fifth of the time and its end."""
    until, took, lock = time.time() + seconds, [], threading.Lock()

    def work(nth):
        client, mine = Client(gateway), []
        while time.time() < until:
            mine.append(client.exec(["/bin/true"], f"agent-{nth % 32}")[1])
        with lock:
            took.extend(mine)

    loader = threading.Thread(target=crowd, args=(64, work))
    loader.start()
    time.sleep(seconds / 5)
    early = state_of(gateway)
    time.sleep(seconds * 0.75)
    late = state_of(gateway)
    loader.join()
    took.sort()
    return {
        "execs": len(took),
        "p50_ms": round(median(took), 2),
        "p99_over_p50": round(took[int(len(took) * 0.99)] / median(took), 2),
        "early": early,
        "late": late,
    }


def timeouts(gateway, count, mark):
    """Programs that leave a detached child each; how late they end, and which processes are left."""
    limit, late, lock, left = 0.2, [], threading.Lock(), [count]

    def work(nth):
        client = Client(gateway)
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            result, _ = client.exec(
                ["/bin/sh", "-c", f"setsid sleep {mark} & sleep {mark}"], f"agent-{nth}", timeout_sec=limit
            )
            if result["outcome"] != "timed_out":
                sys.exit(f"no timeout: {result}")
            with lock:
                late.append(result["duration_ms"] - limit * 1000)

    crowd(8, work)
    time.sleep(1)
    orphans = subprocess.run(["pgrep", "-fc", f"^sleep {mark}$"], capture_output=True, text=True).stdout.strip()
    late.sort()
    return {
        "timeouts": len(late),
        "late_ms_p50": round(median(late), 1),
        "late_ms_p99": round(late[int(len(late) * 0.99)], 1),
        "late_ms_max": round(late[-1], 1),
        "orphans": int(orphans),
    }


def restarted(gateway, how=signal.SIGTERM):
    """Seconds from the start of the process to /readyz 200, with all sandboxes of the previous one."""
    gateway.process.send_signal(how)
    if gateway.process.wait(60) not in (0, -signal.SIGKILL):
        sys.exit("the gateway did not end well")
    began = time.time()
    config = os.path.join(gateway.dir, "isogate.yaml")
    gateway.process = subprocess.Popen([gateway.binary, "serve", "--config", config], stderr=gateway.log)
    while time.time() - began < 30:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                break
        except OSError:
            pass
        time.sleep(0.005)
    ready = time.time() - began
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("GET", "/sandboxes", headers={"Authorization": f"Bearer {gateway.key}"})
    known = len(json.loads(connection.getresponse().read())["sandboxes"])
    return {"ready_sec": round(ready, 3), "sandboxes": known}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--scale", type=int, default=1)
    options = parser.parse_args()
    gateway = Gateway(os.path.abspath(options.build), "on_shutdown: keep\nlog: {access: false}\n")
    mark = str(100000 + os.getpid())
    try:
        result = {
            "agents": among_agents(gateway, 3000 // options.scale),
            "load": under_load(gateway, 60 / options.scale),
            "timeouts": timeouts(gateway, 10000 // options.scale, mark),
        }
        result["after"] = state_of(gateway)
        result["restart"] = restarted(gateway)
    finally:
        gateway.stop()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
