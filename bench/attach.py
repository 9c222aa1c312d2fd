#!/usr/bin/env python3
"""Attached terminals. As root for a backend other than local.

    attach.py BUILD_DIR [--backend local] [--keys 500] [--terminals 1000] [--mib 1024]

A keystroke through a terminal that echoes it, over the same terminal without a gateway; the bytes per second of an
attached exec, over the same bytes through POST /exec-stream and a raw pipe; memory and CPU of idle attached terminals.
"""

import argparse
import http.client
import json
import os
import pty
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
import tty

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway, status  # noqa: E402


class Attached:
    """A WebSocket on one exec: bytes in and out, and nothing else of RFC 6455."""

    def __init__(self, gateway, exec_id):
        self.socket = socket.create_connection(("127.0.0.1", gateway.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(
            (
                f"GET /execs/{exec_id}/attach HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: Upgrade\r\n"
                f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
                f"Authorization: Bearer {gateway.key}\r\n\r\n"
            ).encode()
        )
        self.held = bytearray()
        while b"\r\n\r\n" not in self.held:
            self.more()
        head, rest = bytes(self.held).split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            sys.exit(head.decode() + rest.decode())
        self.held = bytearray(rest)

    def more(self):
        came = self.socket.recv(1 << 18)
        if not came:
            sys.exit("the WebSocket was closed")
        self.held += came

    def frame(self):
        """(opcode, payload) of the next one."""
        while True:
            if len(self.held) >= 2:
                size, at = self.held[1] & 127, 2
                if size == 126 and len(self.held) >= 4:
                    size, at = struct.unpack_from(">H", self.held, 2)[0], 4
                elif size == 127 and len(self.held) >= 10:
                    size, at = struct.unpack_from(">Q", self.held, 2)[0], 10
                elif size >= 126:
                    size = 1 << 62
                if len(self.held) >= at + size:
                    frame = self.held[0] & 15, bytes(self.held[at : at + size])
                    del self.held[: at + size]
                    return frame
            self.more()

    def output(self):
        """The next bytes; None at the end."""
        while True:
            opcode, payload = self.frame()
            if opcode == 2:
                return payload[9:]
            if opcode == 8 or b'"exit"' in payload:
                return None

    def type(self, data):
        self.socket.sendall(bytes([0x82, 0x80 | len(data)]) + b"\0\0\0\0" + data)


def start(gateway, command, **more):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    headers = {"Authorization": "Bearer " + gateway.key, "Content-Type": "application/json"}
    body = {"agent_id": "bench", "command": command, "background": True, **more}
    connection.request("POST", "/exec", json.dumps(body), headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    if answer.status != 202:
        sys.exit(f"POST /exec: {answer.status} {said}")
    return said["exec_id"]


def keystrokes(gateway, rounds):
    master, slave = pty.openpty()
    tty.setraw(slave)
    plain = subprocess.Popen(["cat"], stdin=slave, stdout=slave)
    through = Attached(gateway, start(gateway, "stty raw -echo; echo ready; exec cat", pty={"cols": 80, "rows": 24}))
    while b"ready" not in through.output():
        pass
    took = {"terminal": [], "gateway": []}
    for _ in range(rounds):
        began = time.perf_counter()
        os.write(master, b"x")
        os.read(master, 1)
        took["terminal"].append(time.perf_counter() - began)
        began = time.perf_counter()
        through.type(b"x")
        through.output()
        took["gateway"].append(time.perf_counter() - began)
    plain.kill()
    plain.wait()
    p50 = {name: statistics.median(each) * 1e6 for name, each in took.items()}
    p99 = {name: sorted(each)[len(each) * 99 // 100] * 1e6 for name, each in took.items()}
    print(
        f"keystroke   terminal p50 {p50['terminal']:.0f} µs   gateway p50 {p50['gateway']:.0f} µs, p99 "
        f"{p99['gateway']:.0f} µs   added {p50['gateway'] - p50['terminal']:.0f} µs",
        flush=True,
    )


def drained(read):
    began, size = time.perf_counter(), 0
    while chunk := read():
        size += len(chunk)
    return size / (time.perf_counter() - began) / (1 << 20)


def throughput(gateway, mib):
    command = f"head -c {mib}M /dev/zero"
    rates = {"pipe": [], "exec-stream": [], "attach": []}
    for _ in range(3):
        with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, bufsize=0) as plain:
            rates["pipe"].append(drained(lambda: plain.stdout.read(1 << 18)))
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        headers = {"Authorization": "Bearer " + gateway.key, "Content-Type": "application/json"}
        connection.request("POST", "/exec-stream", json.dumps({"agent_id": "bench", "command": command}), headers)
        answer = connection.getresponse()
        began = time.perf_counter()
        while answer.read(1 << 18):
            pass
        rates["exec-stream"].append(mib / (time.perf_counter() - began))
        exec_id = start(gateway, "read go; exec " + command, stdin_open=True)
        attached = Attached(gateway, exec_id)
        attached.type(b"\n")
        rates["attach"].append(drained(attached.output))
    base = statistics.median(rates["pipe"])
    for name, each in rates.items():
        rate = statistics.median(each)
        print(f"throughput  {name:12} {rate:8.0f} MiB/s   {rate / base:5.2f} ×", flush=True)


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def idle(gateway, terminals):
    own = gateway.children()
    before = {name: int(status(pid, "VmRSS")) for name, pid in own.items()}
    attached = []
    for i in range(terminals):
        place = {"agent_id": f"idle{i % 20}", "backend": gateway.backends[i % 2]}
        exec_id = start(gateway, "exec cat", pty={"cols": 80, "rows": 24}, **place)
        attached.append(Attached(gateway, exec_id))
    time.sleep(2)
    used = cpu_seconds(own.values())
    time.sleep(10)
    used = cpu_seconds(own.values()) - used
    grown = {"front": 0, "hosts": 0}
    for name, pid in own.items():
        grown["front" if name == "front" else "hosts"] += int(status(pid, "VmRSS")) - before[name]
    for name, kib in grown.items():
        print(f"idle        {terminals} terminals: {name:6} +{kib / terminals:6.1f} KiB each", flush=True)
    print(f"idle        {terminals} terminals: CPU {used / 10 * 100:.1f} % of one", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--terminals", type=int, default=1000)
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limits = (
        "limits: {max_execs: 4096, max_execs_per_sandbox: 1024, max_held_bytes: 4294967296, tenant_share_percent: 100, max_connections: 4096}\n"
    )
    # Two backend hosts, because the descriptors of one bound its concurrent execs.
    second = f"  - name: second\n    plugin: {options.backend}\n"
    gateway = Gateway(os.path.abspath(options.build), second + limits, options.backend)
    gateway.backends = [options.backend, "second"]
    try:
        keystrokes(gateway, options.keys)
        throughput(gateway, options.mib)
        idle(gateway, options.terminals)
    finally:
        gateway.stop()


main()
