#!/usr/bin/env python3
"""An exec of /bin/true through the gateway over a bare spawn of it, on each backend, in two ways of the same run. In the
loop, nothing runs between the two. In alternation, another program runs before each of them, as in real use, and
fills the processors' caches with its own code and data. Root, for the backend `namespace`.

    alternation.py BUILD_DIR [--engine unix:///path] [--kubeconfig FILE] [--rounds N] [--only NAME] [--other COMMAND]
"""

import argparse
import contextlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docker  # noqa: E402
from k8s import Cluster  # noqa: E402
from run import TRUE, Gateway, exec_http  # noqa: E402

# The p50 of an exec over that of a bare spawn must be at most this: in the loop, in alternation.
TARGETS = {"local": (1.3, 1.45), "namespace": (1.35, 1.5), "docker": (1.5, 1.7), "k8s": (2.7, 2.8)}


@contextlib.contextmanager
def gateway_of(backend, build, options):
    cluster = Cluster(build, options.kubeconfig) if backend == "k8s" else None
    try:
        if cluster:
            gateway = cluster.gateway()
        elif backend == "docker":
            gateway = docker.gateway_of(build, options.engine)
        else:
            gateway = Gateway(build, backend=backend)
        try:
            yield gateway
        finally:
            gateway.stop()
    finally:
        if cluster:
            cluster.clean()


def missing(backend, options):
    """Why this backend cannot be measured here, or nothing."""
    if backend == "namespace" and os.geteuid() != 0:
        return "only root's gateway gives each sandbox a user"
    if backend == "docker" and not options.engine:
        return "no --engine: tests/engines/docker.sh up"
    if backend == "k8s" and not options.kubeconfig:
        return "no --kubeconfig: tests/engines/kubernetes.sh up"
    return ""


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}"


def row(backend, way, figures, target):
    word = "missed" if figures["p50_ratio"] > target else ""
    micros = "".join(f"{figures[key]:9.0f}" for key in ("http_p50_us", "bare_p50_us", "http_p90_us", "bare_p90_us"))
    ratios = f"{figures['p50_ratio']:8.2f}{figures['p90_ratio']:8.2f}{figures['relay_p50_ratio']:8.2f}{target:7.2f}"
    print(f"{backend:10} {way:12}{micros}{ratios}  {word}".rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--engine", help="of the backend docker")
    parser.add_argument("--kubeconfig", help="of the backend k8s")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--other", default="/usr/bin/python3 -c pass", help="the program that runs before each")
    parser.add_argument("--json", action="store_true", help="all figures of a backend in a line, in addition to its rows")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    print(f"kernel     {platform.system()} {platform.release()}\nprocessor  {processor()}\n"
          f"date       {time.strftime('%Y-%m-%d %H:%M:%S %z')}\nload       {os.getloadavg()[0]:.1f}\n"
          f"rounds     {options.rounds}, in alternation with `{options.other}`\n")
    print(f"{'':22} {'exec p50':>9}{'bare p50':>9}{'exec p90':>9}{'bare p90':>9}{'p50':>8}{'p90':>8}{'relay':>8}"
          f"{'target':>7}\n{'backend':10} {'measured':12}{'us':>8} {'us':>8} {'us':>8} {'us':>8} {'ratio':>7} {'ratio':>7}"
          f" {'p50':>7} {'p50':>6}")
    for backend in [options.only] if options.only else TARGETS:
        why = missing(backend, options)
        if why:
            print(f"{backend:10} skipped: {why}")
            continue
        with gateway_of(backend, build, options) as gateway:
            figures = exec_http(build, "alternation", gateway.port, gateway.key, TRUE, options.rounds, "/bin/true", "--",
                                *shlex.split(options.other))
        row(backend, "loop", figures["loop"], TARGETS[backend][0])
        row(backend, "alternation", figures["alternation"], TARGETS[backend][1])
        if options.json:
            print(json.dumps(figures))


if __name__ == "__main__":
    main()
