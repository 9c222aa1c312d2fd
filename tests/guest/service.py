#!/usr/bin/env python3
"""What an operator does with the installed service, as docs/install.md shows it: in the guest, where systemd is process 1.

After each step the limits of programs are those that the kernel shows, whatever the gateway reports.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

CONFIG = pathlib.Path("/etc/isogate/isogate.yaml")
LIMITS = {"memory.max": str(64 << 20), "cpu.max": "50000 100000", "pids.max": "20"}
WITHIN_SEC = 300  # an emulated processor is slow


def done(*argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_SEC)


def output(*argv):
    ended = done(*argv)
    if ended.returncode != 0:
        raise AssertionError(f"{argv} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def shown(name):
    return output("systemctl", "show", "-P", name, "isogate").strip()


def until(condition, what):
    for _ in range(WITHIN_SEC * 5):
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"not within {WITHIN_SEC} s: {what}")


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def text_of(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def events(*names):
    """The lines of the gateway's log with these events."""
    lines = output("journalctl", "-u", "isogate", "-o", "cat").splitlines()
    return [line for line in map(json.loads, filter(lambda text: text.startswith("{"), lines)) if line["event"] in names]


def running(marker):
    """The processes that run `sleep MARKER`."""
    return [pid for pid in processes() if text_of(f"/proc/{pid}/cmdline").startswith(f"sleep\0{marker}\0")]


def background(marker, agent):
    """Starts a program with LIMITS, and returns its process."""
    output("isogate", "exec", "-d", "--agent", agent, "--memory-mb", "64", "--cpu-percent", "50", "--max-pids", "20",
           "--timeout", "3000", "--", "sleep", marker)
    until(lambda: running(marker), f"sleep {marker} runs")
    return running(marker)[0]


def limits_in_force(marker, agent="a", of_agent=2048):
    """Of a program, by what it asks for, and of all programs of its agent, in MiB of memory."""
    pid = background(marker, agent)
    group = pathlib.Path("/sys/fs/cgroup" + text_of(f"/proc/{pid}/cgroup").strip().removeprefix("0::"))
    unit = pathlib.Path("/sys/fs/cgroup" + shown("ControlGroup"))
    assert unit in group.parents, f"{group} is not below {unit}"
    found = {name: {text_of(at / name).strip() for at in [group, *group.parents] if unit in at.parents} for name in LIMITS}
    for name, value in [*LIMITS.items(), ("memory.max", str(of_agent << 20))]:
        assert value in found[name], f"{name} of {group} and above: {found[name]}, without {value}"
    ended = done("isogate", "exec", "--agent", agent, "--memory-mb", "64", "--", "python3", "-c", "b = bytearray(300 << 20)")
    assert ended.returncode == 137, f"a program above its memory ended with {ended.returncode}: {ended.stdout}{ended.stderr}"
    return pid


def configured():
    CONFIG.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("/usr/local/share/doc/isogate/examples/single-host.yaml", CONFIG)
    CONFIG.chmod(0o640)
    ended = done("isogate", "config", "check", str(CONFIG))
    assert ended.returncode == 0 and "warning" not in ended.stdout + ended.stderr, ended


def started():
    output("systemctl", "start", "isogate")
    limits_in_force("1001")


def reloaded():
    before, pid = shown("MainPID"), running("1001")
    CONFIG.write_text(CONFIG.read_text().replace("memory_mb: 2048", "memory_mb: 1024"))
    output("systemctl", "reload", "isogate")
    until(lambda: events("reloaded"), "the reload is complete")
    limits_in_force("1002", "b", 1024)
    refused = done("isogate", "exec", "--agent", "a", "--", "true")
    assert refused.returncode == 125, f"an agent that runs under the old limits: {refused}"
    assert shown("MainPID") == before, "another process serves"
    assert running("1001") == pid, "the reload ended a running program"


def restarted():
    before = shown("MainPID")
    output("systemctl", "restart", "isogate")
    assert shown("MainPID") != before
    assert not running("1001") + running("1002"), "programs outlived their gateway"
    limits_in_force("1003", of_agent=1024)


def killed():
    before = shown("MainPID")
    os.kill(int(before), signal.SIGKILL)
    until(lambda: shown("ActiveState") == "active" and shown("MainPID") not in ("0", before), "another gateway serves")
    assert shown("NRestarts") == "1", shown("NRestarts")
    until(lambda: not running("1003"), "the programs of the killed gateway ended")
    limits_in_force("1004", of_agent=1024)


def stopped():
    output("systemctl", "stop", "isogate")
    assert shown("Result") == "success", shown("Result")
    left = [text_of(f"/proc/{pid}/cmdline") for pid in processes() if "isogate.service" in text_of(f"/proc/{pid}/cgroup")]
    assert not left + running("1004"), f"left behind: {left}"


def silent():
    """Nothing was wrong but what this did."""
    assert not events("cgroup_not_left", "start_failed", "front_crashed", "front_killed", "not_drained", "reload_refused")
    until(lambda: len(events("stopped")) > 1, "the journal has both stops")  # it may be late
    stops = events("stopped")
    assert len(stops) == 2 and all(line["exit_code"] == 0 for line in stops), stops
    assert "warning" not in output("journalctl", "-u", "isogate", "-o", "cat"), "the check before a start warns"


def main():
    failed = 0
    for step in (configured, started, reloaded, restarted, killed, stopped, silent):
        begin = time.monotonic()
        try:
            step()
            print(f"guest: {step.__name__} in {time.monotonic() - begin:.0f} s", flush=True)
        except (AssertionError, subprocess.TimeoutExpired, OSError, ValueError) as error:
            failed += 1
            print(f"guest: {step.__name__} failed: {error}", flush=True)
    if failed:
        print(done("journalctl", "-u", "isogate", "-o", "cat", "-n", "60").stdout, flush=True)
    print(f"guest: service.py ended with {failed}", flush=True)


if __name__ == "__main__":
    main()
