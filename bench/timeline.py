#!/usr/bin/env python3
"""Where the time of an exec goes: the median time of each step from the client's request to its response, in the loop
and in alternation (see alternation.py), on the backend `local`, from the kernel's scheduler events. The events cost
time themselves: compare the steps with each other. Root, with perf (the package linux-perf), on an idle machine.

    timeline.py BUILD_DIR [--rounds N]
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import TRUE, Gateway, exec_http  # noqa: E402

EVENTS = (
    "sched:sched_switch,sched:sched_process_exec,sched:sched_process_exit,"
    "syscalls:sys_enter_sendmsg,syscalls:sys_enter_sendto,syscalls:sys_enter_clone3"
)
STEPS = [
    ("request", "front", "until the front runs"),
    ("front", "asked", "front: reads and checks it, makes pipes, asks the backend host"),
    ("asked", "host", "until the backend host runs"),
    ("host", "clone", "backend host: prepares the program"),
    ("clone", "exec", "child: from clone to exec"),
    ("exec", "exit", "the program, from exec to its end"),
    ("exit", "ended", "backend host: collects it and replies"),
    ("ended", "again", "until the front runs"),
    ("again", "answered", "front: reads the output, writes the response"),
    ("answered", "response", "until the client runs"),
]
OTHER_RUNS_US = 8000  # between two execs in alternation, at least; never in the loop


def threads_of(pid):
    return {int(thread) for thread in os.listdir(f"/proc/{pid}/task")}


def traced(gateway, build, rounds):
    """The events while the bench runs, in their order: (time in us, thread, name, text)."""
    with tempfile.TemporaryDirectory() as directory:
        data = os.path.join(directory, "perf.data")
        perf = subprocess.Popen(["perf", "record", "-q", "-a", "-m", "4096", "-o", data, "-e", EVENTS])
        time.sleep(1)
        exec_http(build, "alternation", gateway.port, gateway.key, TRUE, rounds,
                  "/bin/true", "--", "/usr/bin/python3", "-c", "pass")
        perf.terminate()
        perf.wait()
        script = subprocess.run(["perf", "script", "-i", data, "-F", "tid,time,event,trace"],
                                check=True, capture_output=True, text=True).stdout
    line = re.compile(r"\s*(\d+)\s+([\d.]+):\s+\w+:(\w+): (.*)")
    found = (line.match(each) for each in script.splitlines())
    return sorted((float(m[2]) * 1e6, int(m[1]), m[3], m[4]) for m in found if m)


def execs_of(events, front, hosts):
    """For each exec that was seen whole, the time of each end of a step."""
    all_of_it, seen, client = [], None, 0
    for at, thread, name, text in events:
        if name == "sys_enter_sendto" and thread not in hosts and thread != front:
            seen, client = {"request": at}, thread
        elif seen is None:
            continue
        elif name == "sched_switch":
            runs = int(re.search(r"next_pid=(\d+)", text)[1])
            if runs == front:
                seen.setdefault("again" if "ended" in seen else "front", at)
            elif runs in hosts and "asked" in seen:
                seen.setdefault("host", at)
            elif runs == client and "answered" in seen:
                seen["response"] = at
                all_of_it.append(seen)
                seen = None
        elif name == "sys_enter_sendmsg" and thread == front:
            seen.setdefault("answered" if "ended" in seen else "asked", at)
        elif name == "sys_enter_sendmsg" and thread in hosts:
            seen["ended"] = at
        elif name == "sys_enter_clone3" and thread in hosts:
            seen["clone"] = at
        elif name == "sched_process_exec" and "clone" in seen:
            seen.setdefault("exec", at)
        elif name == "sched_process_exit" and "exec" in seen:
            seen.setdefault("exit", at)
    return [each for each in all_of_it if all(begin in each and end in each for begin, end, _ in STEPS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("perf"):
        sys.exit("this needs root, and perf: install the package linux-perf")
    build = os.path.abspath(options.build)
    gateway = Gateway(build)
    try:
        exec_http(build, "latency", gateway.port, gateway.key, TRUE, 300, 0, "/bin/true")  # warm
        children = gateway.children()
        events = traced(gateway, build, options.rounds)
        execs = execs_of(events, children["front"], threads_of(children["host"]))
    finally:
        gateway.stop()
    loop, alternation, before = [], [], 0
    for each in execs:
        (alternation if each["request"] - before > OTHER_RUNS_US else loop).append(each)
        before = each["response"]
    if not loop or not alternation:
        sys.exit("too few execs were seen whole: use more --rounds")
    print(f"{len(loop)} execs in the loop, {len(alternation)} in alternation; us, medians")
    for begin, end, what in [*STEPS, ("request", "response", "the whole")]:
        took = [statistics.median(each[end] - each[begin] for each in some) for some in (loop, alternation)]
        print(f"{what:64} {took[0]:6.0f} {took[1]:6.0f}")


if __name__ == "__main__":
    main()
