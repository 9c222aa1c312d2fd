#!/usr/bin/env python3
"""Ports of a sandbox on the backend namespace. As root.

    ports.py BUILD_DIR [--requests 2000] [--mib 512]

One HTTP request through the gateway by host name, over the same request from inside the sandbox; bytes from a port
through a WebSocket, over the same bytes from inside.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway  # noqa: E402

HTTP, BYTES = 8080, 8081

# Runs in the sandbox: as the server of both ports, and as the client that has no gateway between.
INSIDE = r'''
import socket, statistics, sys, threading, time
def answer(s):
    head = b""
    while b"\r\n\r\n" not in head:
        more = s.recv(65536)
        if not more: return
        head += more
    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    s.close()
def pour(s, mib):
    block = bytes(1 << 18)
    for _ in range(mib * 4): s.sendall(block)
    s.close()
def serve(port, act):
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    while True:
        s, _ = listener.accept()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        act(s)
def get():
    with socket.create_connection(("127.0.0.1", 8080)) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while s.recv(65536): pass
def drain():
    began, size = time.perf_counter(), 0
    with socket.create_connection(("127.0.0.1", 8081)) as s:
        while True:
            came = len(s.recv(1 << 18))
            if came == 0: break
            size += came
    return size / (time.perf_counter() - began) / (1 << 20)
if sys.argv[1] == "serve":
    threading.Thread(target=serve, args=(8080, answer), daemon=True).start()
    serve(8081, lambda s: pour(s, int(sys.argv[2])))
elif sys.argv[1] == "get":
    took = []
    for _ in range(int(sys.argv[2])):
        began = time.perf_counter(); get(); took.append(time.perf_counter() - began)
    took.sort()
    print(statistics.median(took) * 1e6, took[len(took) * 99 // 100] * 1e6)
else:
    print(drain())
'''


def call(gateway, body):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    headers = {"Authorization": "Bearer " + gateway.key, "Content-Type": "application/json"}
    connection.request("POST", "/exec", json.dumps({"agent_id": "bench", **body}), headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    if answer.status not in (200, 202) or said.get("exit_code", 0) not in (0, None):
        sys.exit(f"POST /exec: {answer.status} {said}")
    return said


def inside(gateway, *arguments):
    said = call(gateway, {"argv": ["/usr/bin/python3", "inside.py", *map(str, arguments)], "timeout_sec": 300})
    return [float(word) for word in said["stdout"].split()]


def requests(gateway, count):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    headers = {"Authorization": "Bearer " + gateway.key, "Host": f"{HTTP}-bench.bench.test"}
    took = []
    for _ in range(count):
        began = time.perf_counter()
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        if answer.read() != b"ok":
            sys.exit(f"GET /: {answer.status}")
        took.append(time.perf_counter() - began)
    took.sort()
    return statistics.median(took) * 1e6, took[len(took) * 99 // 100] * 1e6


def drained(gateway):
    """MiB/s of a port's bytes; frames are read, and their payload counted."""
    with socket.create_connection(("127.0.0.1", gateway.port)) as stream:
        stream.sendall(
            (
                f"GET /sandboxes/bench/ports/{BYTES} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: Upgrade\r\n"
                f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
                f"Authorization: Bearer {gateway.key}\r\n\r\n"
            ).encode()
        )
        reader = stream.makefile("rb", buffering=1 << 18)
        if b" 101 " not in reader.readline():
            sys.exit("no WebSocket")
        while reader.readline() != b"\r\n":
            pass
        began, size = time.perf_counter(), 0
        while True:
            head = reader.read(2)
            length = head[1] & 127
            if length == 126:
                length = struct.unpack(">H", reader.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", reader.read(8))[0]
            payload = len(reader.read(length))
            if head[0] & 15 == 8:
                return size / (time.perf_counter() - began) / (1 << 20)
            size += payload


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args()
    gateway = Gateway(os.path.abspath(options.build), "ports: {domain: bench.test}\n", "namespace")
    call(gateway, {"argv": ["/bin/sh", "-c", "cat > inside.py"], "stdin": INSIDE})
    call(gateway, {"argv": ["/usr/bin/python3", "inside.py", "serve", str(options.mib)], "background": True})
    time.sleep(1)
    for _ in range(3):
        direct, through = inside(gateway, "get", options.requests), requests(gateway, options.requests)
        print(
            f"request     inside p50 {direct[0]:.0f} µs, p99 {direct[1]:.0f} µs   through the gateway p50 {through[0]:.0f} µs, "
            f"p99 {through[1]:.0f} µs   added {through[0] - direct[0]:.0f} µs",
            flush=True,
        )
    for _ in range(3):
        direct, through = inside(gateway, "drain")[0], drained(gateway)
        print(f"bytes       inside {direct:.0f} MiB/s   WebSocket {through:.0f} MiB/s   ratio {through / direct:.2f}", flush=True)
    gateway.stop()


if __name__ == "__main__":
    main()
