#!/usr/bin/env python3
"""Measures the gateway against baselines of the same run. See README.md in this folder."""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Gateway:
    """`isogate serve` in its own directory, with one backend."""

    def __init__(self, build, options="", backend="local"):
        # Under the build directory: a plugin or a state directory below /tmp may be refused.
        self.dir = tempfile.mkdtemp(prefix="bench-", dir=build)
        os.chmod(self.dir, 0o755)
        # Copied, as an installation is: where a linker's output lies in the page cache costs an exec up to 25 us more.
        shutil.copytree(os.path.join(build, "plugins"), os.path.join(self.dir, "plugins"),
                        ignore=lambda _, names: [name for name in names if not name.endswith(".so")])
        runner = os.path.join(build, "bin", "isogate-runner")  # the backend docker looks for it next to the binary
        if os.path.exists(runner):
            shutil.copy(runner, self.dir)
        self.binary = shutil.copy(os.path.join(build, "bin", "isogate"), self.dir)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = os.path.join(self.dir, "isogate.yaml")
        with open(config, "w") as out:
            out.write(
                f"listen: ['127.0.0.1:{self.port}']\nstate_dir: {self.dir}/state\nallow_unisolated: true\n"
                f"plugin_dir: {self.dir}/plugins\nbackends:\n  - name: {backend}\n{options}"
            )
        self.log = open(os.path.join(self.dir, "log"), "w")
        self.process = subprocess.Popen([self.binary, "serve", "--config", config], stderr=self.log, stdout=self.log)
        self.socket = os.path.join(self.dir, "state", "isogate.sock")
        for _ in range(200):
            if self.process.poll() is not None:
                sys.exit("the gateway ended: " + open(self.log.name).read())
            done = subprocess.run(
                ["curl", "-fsS", "--unix-socket", self.socket, "http://localhost/readyz"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            if done.returncode == 0:
                break
            time.sleep(0.05)
        key = os.path.join(self.dir, "state", "local.key")  # there is none if the options have `keys`
        self.key = open(key).read().strip() if os.path.exists(key) else ""

    def children(self):
        """name → pid of `front`, `host` and, with several backends, `host 2`."""
        found = {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{pid}/cmdline") as line:
                    name = line.read().replace("\0", " ")
            except OSError:
                continue
            if parent == self.process.pid:
                role = "front" if "_front" in name else "host"
                others = sum(name.startswith(role) for name in found)
                found[role if others == 0 else f"{role} {others + 1}"] = int(pid)
        return found

    def curl(self, *arguments):
        return subprocess.run(
            ["curl", "-sS", "-H", f"Authorization: Bearer {self.key}", *arguments], check=True, capture_output=True
        ).stdout

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.log.close()
        if code != 0:
            sys.exit(f"the gateway ended with {code}: " + open(self.log.name).read()[-2000:])
        shutil.rmtree(self.dir, ignore_errors=True)


def status(pid, field):
    with open(f"/proc/{pid}/status") as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return 0


def exec_http(build, *arguments):
    out = subprocess.run([os.path.join(build, "bin", "exec_http"), *map(str, arguments)], check=True, capture_output=True)
    return json.loads(out.stdout)


TRUE = '{"argv":["/bin/true"]}'
TRUE_EACH = '{"argv":["/bin/true"],"agent_id":"client-{client}"}'  # a sandbox for each client
SHELL = '{"command":"true"}'


def bench_latency(build, scale):
    """exec of /bin/true at one client over a bare spawn of it; the same through the shell"""
    gateway = Gateway(build)
    n = 3000 // scale
    result = {
        "true": exec_http(build, "latency", gateway.port, gateway.key, TRUE, n, 0, "/bin/true"),
        "shell": exec_http(build, "latency", gateway.port, gateway.key, SHELL, n, 0, "/bin/bash", "-c", "true"),
    }
    gateway.stop()
    return result


PYTHON = '{"argv":["/usr/bin/python3","-c","pass"]}'


def bench_namespace(build, scale):
    """the same on the backend namespace, at 1, 8 and 64 clients; python3 -c pass; without HTTP, with its peers.
    All clients use one sandbox, which has one processor; then each its own; then both without that cap"""
    if os.geteuid() != 0:
        return {"skipped": "only root's gateway gives each sandbox a user"}
    gateway = Gateway(build, backend="namespace")
    n = 3000 // scale
    result = {
        "true": exec_http(build, "latency", gateway.port, gateway.key, TRUE, n, 0, "/bin/true"),
        "python": exec_http(
            build, "latency", gateway.port, gateway.key, PYTHON, n // 10, 0, "/usr/bin/python3", "-c", "pass"
        ),
    }
    gateway.stop()
    for cap, options in (("one processor", ""), ("no cap", "    config: {cpus: 0}\n")):
        gateway = Gateway(build, options, backend="namespace")
        for clients in (8, 64):
            for sandboxes, body in (("one sandbox", TRUE), ("a sandbox each", TRUE_EACH)):
                result[f"{clients}, {sandboxes}, {cap}"] = exec_http(
                    build, "throughput", gateway.port, gateway.key, body, clients, 3 / scale, "/bin/true"
                )
        gateway.stop()
    for agents in (1, 1000 // scale):
        out = subprocess.run(
            [os.path.join(build, "bin", "namespace_cost"), os.path.join(build, "plugins", "namespace.so"), str(n // 3),
             str(agents)], check=True, capture_output=True, text=True,
        ).stdout
        result[f"{agents} agents"] = out.splitlines()
    return result


def bench_throughput(build, scale):
    """execs per second at 1, 16 and 64 clients over bare spawns from as many threads"""
    gateway = Gateway(build)
    result = {
        str(clients): exec_http(build, "throughput", gateway.port, gateway.key, TRUE, clients, 3 / scale, "/bin/true")
        for clients in (1, 16, 64)
    }
    gateway.stop()
    return result


def bench_idle(build, scale):
    """the latency with 10,000 idle connections open over without"""
    gateway = Gateway(build)
    n = 2000 // scale
    without = exec_http(build, "latency", gateway.port, gateway.key, TRUE, n, 0, "/bin/true")
    with_idle = exec_http(build, "latency", gateway.port, gateway.key, TRUE, n, 10000, "/bin/true")
    gateway.stop()
    return {
        "without": without,
        "with_10000_idle": with_idle,
        "growth": round(with_idle["p50_ratio"] / without["p50_ratio"], 3),
    }


def bench_stages(build, scale):
    """where the time of one exec goes: HTTP alone, with the hop to the host, with the program"""
    echo = os.path.join(build, "examples", "echo.so")
    gateway = Gateway(build, f"  - name: echo\n    plugin: {echo}\n")
    n = 3000 // scale
    body = '{"argv":["echo"],"backend":"echo","agent_id":"stages"}'
    http = exec_http(build, "get", gateway.port, gateway.key, "/livez", n)
    hop = exec_http(build, "latency", gateway.port, gateway.key, body, n, 0, "/bin/true")
    whole = exec_http(build, "latency", gateway.port, gateway.key, TRUE, n, 0, "/bin/true")
    gateway.stop()
    runner = subprocess.run([os.path.join(build, "bin", "spawn_cost")], capture_output=True, text=True).stdout
    bare = whole["bare_p50_us"]
    return {
        "bare_us": bare,
        "http_over_bare": round(http["p50_us"] / bare, 3),
        "http_pipes_hop_journal_over_bare": round(hop["http_p50_us"] / hop["bare_p50_us"], 3),
        "whole_over_bare": whole["p50_ratio"],
        "runner_alone": runner.strip().splitlines(),
    }


def timed(arguments, **options):
    start = time.monotonic()
    subprocess.run(arguments, check=True, **options)
    return time.monotonic() - start


def median(values):
    return sorted(values)[len(values) // 2]


def bench_stream(build, scale):
    """1 GiB out of an exec's stdout, over the same bytes through a raw pipe"""
    gateway = Gateway(build)
    size = (1 << 30) // scale
    command = f"head -c {size} /dev/zero | tr '\\0' 'a'"
    body = json.dumps({"command": command, "timeout_sec": 600})
    rows = {"raw_pipe": [], "exec_drained": [], "exec_stream": []}
    front = gateway.children()["front"]
    for _ in range(3):
        rows["raw_pipe"].append(timed(f"bash -c \"{command}\" | cat >/dev/null", shell=True))
        common = ["curl", "-sS", "-o", "/dev/null", "-H", f"Authorization: Bearer {gateway.key}", "-H", "Content-Type: application/json", "-d", body]
        rows["exec_drained"].append(timed(common + [gateway.url("/exec")]))
        rows["exec_stream"].append(timed(common + [gateway.url("/exec-stream")]))
    rss = status(front, "VmHWM")
    gateway.stop()
    base = median(rows["raw_pipe"])
    return {name: {"mib_per_sec": round(size / 2**20 / median(times)), "over_raw_pipe": round(base / median(times), 3)} for name, times in rows.items()} | {
        "front_peak_rss_kib": rss
    }


NGINX = """daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log; worker_processes 1; user root;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
 scgi_temp_path {dir}/s; sendfile on; client_max_body_size 0;
 server {{ listen 127.0.0.1:{port}; root {dir}/www; location /up/ {{ dav_methods PUT; }} }} }}
"""


def bench_file(build, scale):
    """1 GiB file down and up over nginx with the same file"""
    gateway = Gateway(build)
    size = (1 << 30) // scale
    www = os.path.join(gateway.dir, "www")
    os.makedirs(os.path.join(www, "up"))
    source = os.path.join(www, "big")
    subprocess.run(["dd", "if=/dev/urandom", f"of={source}", "bs=1M", f"count={size >> 20}", "status=none"], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf = os.path.join(gateway.dir, "nginx.conf")
    with open(conf, "w") as out:
        out.write(NGINX.format(dir=gateway.dir, port=port))
    nginx = subprocess.Popen(["nginx", "-c", conf, "-p", gateway.dir], stderr=subprocess.DEVNULL)
    time.sleep(1)
    auth = ["-H", f"Authorization: Bearer {gateway.key}"]
    gateway.curl("-T", source, gateway.url("/workspace/files/default/big"))
    down = {"nginx": [], "isogate": []}
    up = {"nginx": [], "isogate": []}
    for _ in range(3):
        down["nginx"].append(timed(["curl", "-sS", "-o", "/dev/null", f"http://127.0.0.1:{port}/big"]))
        down["isogate"].append(timed(["curl", "-sS", "-o", "/dev/null", *auth, gateway.url("/workspace/files/default/big")]))
        up["nginx"].append(timed(["curl", "-sS", "-o", "/dev/null", "-T", source, f"http://127.0.0.1:{port}/up/big"]))
        up["isogate"].append(timed(["curl", "-sS", "-o", "/dev/null", *auth, "-T", source, gateway.url("/workspace/files/default/up")]))
    children = gateway.children()
    rss = {name: status(pid, "VmHWM") for name, pid in children.items()}
    nginx.terminate()
    nginx.wait()
    gateway.stop()
    mib = size / 2**20
    return {
        "down": {n: round(mib / median(t)) for n, t in down.items()} | {"over_nginx": round(median(down["nginx"]) / median(down["isogate"]), 3)},
        "up": {n: round(mib / median(t)) for n, t in up.items()} | {"over_nginx": round(median(up["nginx"]) / median(up["isogate"]), 3)},
        "peak_rss_kib": rss,
    }


def bench_sleepers(build, scale):
    """1,000 concurrent `sleep 5`: all answered, wall time, memory and threads"""
    count = 1000 // scale
    gateway = Gateway(build, "limits: {max_execs_per_sandbox: 2000}\n")
    children = gateway.children()
    before = {name: {"rss_kib": status(pid, "VmRSS"), "threads": status(pid, "Threads")} for name, pid in children.items()}
    body = b'{"argv":["sleep","5"],"timeout_sec":60}'
    head = f"POST /exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    answered = []
    lock = threading.Lock()

    def one():
        with socket.create_connection(("127.0.0.1", gateway.port)) as peer:
            peer.sendall(head.encode() + body)
            answer = peer.recv(65536)
            with lock:
                answered.append(b'"exit_code":0,' in answer and answer.startswith(b"HTTP/1.1 200"))

    threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=one) for _ in range(count)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(3)
    during = {name: {"rss_kib": status(pid, "VmRSS"), "threads": status(pid, "Threads")} for name, pid in children.items()}
    for thread in threads:
        thread.join()
    wall = time.monotonic() - start
    time.sleep(8)
    after = {name: {"rss_kib": status(pid, "VmRSS"), "threads": status(pid, "Threads")} for name, pid in children.items()}
    gateway.stop()
    return {"asked": count, "answered_well": sum(answered), "wall_sec": round(wall, 2), "before": before, "during": during, "after": after}


NGINX_TLS = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx-error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;
    location / {{ default_type application/json; return 200 '{{"status":"ok"}}\\n'; }}
  }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def certificate(directory):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem"],
        check=True, capture_output=True,
    )


def load(build, port, path, connections, seconds, kind):
    out = subprocess.run(
        [os.path.join(build, "bin", "livez"), "load", str(port), path, str(connections), str(seconds), kind],
        check=True, capture_output=True,
    )
    return json.loads(out.stdout)["per_sec"]


def compare(build, servers, kind, scale):
    """requests per second at 16 and 64 connections; the first of the servers is the baseline"""
    result = {}
    for connections in (16, 64):
        rates = {name: [] for name in servers}
        for _ in range(5):
            for name, port in servers.items():
                rates[name].append(load(build, port, "/livez", connections, 2 / scale, kind))
        middle = {name: median(rate) for name, rate in rates.items()}
        base = next(iter(middle.values()))
        result[str(connections)] = {
            name: {"per_sec": round(rate), "ratio": round(rate / base, 3)} for name, rate in middle.items()
        }
    return result


def bench_livez(build, scale):
    """GET /livez per second over a bare Beast server, and without the access log; over TLS against nginx's"""
    many = "limits: {max_requests_per_connection: 1000000000}\n"
    gateway = Gateway(build, many)
    silent = Gateway(build, many + "log: {access: false}\n")
    port = free_port()
    bare = subprocess.Popen([os.path.join(build, "bin", "livez"), "serve", str(port)])
    time.sleep(0.5)
    plain = compare(build, {"beast": port, "isogate": gateway.port, "no_access_log": silent.port}, "plain", scale)
    bare.terminate()
    bare.wait()
    silent.stop()
    gateway.stop()
    keys = tempfile.mkdtemp(prefix="bench-tls-", dir=build)
    certificate(keys)
    secured = Gateway(build, many + f"tls: {{cert: {keys}/cert.pem, key: {keys}/key.pem}}\n")
    port = free_port()
    conf = os.path.join(keys, "nginx.conf")
    with open(conf, "w") as out:
        out.write(NGINX_TLS.format(dir=keys, port=port))
    nginx = subprocess.Popen(["nginx", "-c", conf, "-p", keys], stderr=subprocess.DEVNULL)
    time.sleep(1)
    tls = compare(build, {"nginx": port, "isogate": secured.port}, "tls", scale)
    nginx.terminate()
    nginx.wait()
    secured.stop()
    shutil.rmtree(keys, ignore_errors=True)
    return {"plain": plain, "tls": tls}


BENCHES = {name[6:]: function for name, function in globals().items() if name.startswith("bench_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build directory, of the release preset")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a quick look")
    parser.add_argument("names", nargs="*", metavar="name", help="of " + ", ".join(BENCHES))
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    for name in options.names or BENCHES:
        print(f"\n== {name}: {BENCHES[name].__doc__}", flush=True)
        print(json.dumps(BENCHES[name](build, 10 if options.quick else 1), indent=2), flush=True)


if __name__ == "__main__":
    main()
