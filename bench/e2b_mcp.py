#!/usr/bin/env python3
"""An exec through the E2B listener and through MCP. As root for a backend other than local.

    e2b_mcp.py BUILD_DIR [--backend local] [--rounds 2000] [--envd BINARY]

Interleaved, each on one connection that is kept: `POST /exec-stream` and `POST /exec` of the native API, `Start` of E2B's
door, the tool `exec` of MCP's, whose answer is whole as that of `POST /exec` is, and with --envd E2B's own daemon, which
runs the program on this machine without a sandbox. Each is told as a multiple of the native call that it is like.
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import secrets
import socket
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway  # noqa: E402

PROGRAM = "/bin/true"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Native:
    def __init__(self, port, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
        self.body = json.dumps({"agent_id": "bench", "argv": [PROGRAM]})

    def run(self):
        self.connection.request("POST", "/exec-stream", self.body, self.headers)
        answer = self.connection.getresponse()
        events = answer.read().split(b"\n")
        if answer.status != 200 or json.loads(events[-2]).get("exit_code") != 0:
            sys.exit(f"native: {answer.status} {events}")


class Exec:
    def __init__(self, port, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
        self.body = json.dumps({"agent_id": "bench", "argv": [PROGRAM]})

    def run(self):
        self.connection.request("POST", "/exec", self.body, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200 or json.loads(text)["exit_code"] != 0:
            sys.exit(f"exec: {answer.status} {text}")


class Tool:
    def __init__(self, port, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        version = "2026-07-28"
        self.headers = {
            "Authorization": "Bearer " + key, "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version,
            "Mcp-Method": "tools/call", "Mcp-Name": "exec"}
        self.body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "exec", "arguments": {"argv": [PROGRAM]}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {}}}})

    def run(self):
        self.connection.request("POST", "/mcp/bench", self.body, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200 or json.loads(text)["result"]["structuredContent"]["exit_code"] != 0:
            sys.exit(f"mcp: {answer.status} {text}")


class Start:
    def __init__(self, port, headers, name):
        self.name = name
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **headers}
        message = json.dumps({"process": {"cmd": PROGRAM, "args": []}, "stdin": False}).encode()
        self.body = struct.pack(">BI", 0, len(message)) + message

    def run(self):
        self.connection.request("POST", "/process.Process/Start", self.body, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200 or b'"exited":true' not in text.replace(b" ", b"") or b'"error"' in text:
            sys.exit(f"{self.name}: {answer.status} {text}")


def e2b_listener(gateway, port, key):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v2/sandboxes", json.dumps({"templateID": "base", "timeout": 3600}),
                       {"X-API-KEY": key, "Content-Type": "application/json"})
    answer = connection.getresponse()
    made = json.loads(answer.read())
    if answer.status != 201:
        sys.exit(f"no sandbox: {made}")
    return Start(port, {"X-Access-Token": made["envdAccessToken"], "E2b-Sandbox-Id": made["sandboxID"]}, "e2b")


def envd(binary):
    port = free_port()
    process = subprocess.Popen([binary, "-isnotfc", "-port", str(port)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    user = base64.b64encode(b"root:").decode()
    return process, Start(port, {"Authorization": "Basic " + user}, "envd")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--envd")
    options = parser.parse_args()
    key = "e2b_" + secrets.token_hex(32)
    port = free_port()
    settings = (
        f"e2b: {{listen: ['127.0.0.1:{port}']}}\n"
        f"keys: [{{name: bench, tenant: bench, sha256: {hashlib.sha256(key.encode()).hexdigest()}}}]\n"
    )
    gateway = Gateway(os.path.abspath(options.build), settings, options.backend)
    process = None
    try:
        ways = {"exec-stream": Native(gateway.port, key), "e2b": e2b_listener(gateway, port, key),
                 "exec": Exec(gateway.port, key), "mcp": Tool(gateway.port, key)}
        if options.envd:
            process, ways["envd"] = envd(options.envd)
        times = {name: [] for name in ways}
        for i in range(options.rounds + 100):
            for name, each in ways.items():
                began = time.perf_counter()
                each.run()
                if i >= 100:
                    times[name].append((time.perf_counter() - began) * 1e6)
        for name, each in times.items():
            p50, p90 = statistics.median(each), statistics.quantiles(each, n=10)[-1]
            like = "exec" if name in ("exec", "mcp") else "exec-stream"
            ratio = p50 / statistics.median(times[like])
            print(f"{name:11} p50 {p50:7.0f} µs   p90 {p90:7.0f} µs   {ratio:5.2f} × POST /{like}", flush=True)
    finally:
        if process:
            process.terminate()
            process.wait()
        gateway.stop()


if __name__ == "__main__":
    main()
