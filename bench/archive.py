#!/usr/bin/env python3
"""What an archive gains and costs, over one call for each file and over the raw file route, in turns.

    archive.py BUILD_DIR [--backend local] [--files 1000] [--bytes 1024] [--mib 100] [--rounds 7]

Files per second up and down, against curl on one connection with a call for each file; MiB/s of one large file up and
down, against the raw file route.
"""

import argparse
import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import Gateway  # noqa: E402


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Bench:
    def __init__(self, gateway, scratch, options):
        self.gateway, self.scratch, self.options = gateway, scratch, options
        self.fill = os.urandom(options.bytes)
        self.write("files.tar", tar_of((f"{i % 10}/{i}", self.fill) for i in range(options.files)))
        self.write("small", self.fill)
        large = os.urandom(1 << 20) * options.mib
        self.write("large", large)
        self.write("large.tar", tar_of([("large", large)]))
        for name, call in (("up", 'upload-file = "%s"' % self.path("small")), ("down", 'output = "/dev/null"')):
            self.write(name, "".join(
                f'url = "{gateway.url(f"/workspace/files/bench/one/{i % 10}/{i}")}"\n{call}\n'
                for i in range(options.files)).encode())

    def path(self, name):
        return os.path.join(self.scratch, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as out:
            out.write(content)

    def timed(self, *arguments):
        began = time.perf_counter()
        self.gateway.curl("-f", *arguments)
        return time.perf_counter() - began

    def archive(self, query):
        return self.gateway.url(f"/workspace/archive?agent_id=bench&{query}")

    def raw(self, path):
        return self.gateway.url(f"/workspace/files/bench/{path}")

    def round(self):
        to, null = self.path, "/dev/null"
        return {
            "files up": (
                self.timed("-T", to("files.tar"), self.archive("path=many")),
                self.timed("-K", to("up"), "-o", null),
            ),
            "files down": (
                self.timed("-o", null, self.archive("path=many")),
                self.timed("-K", to("down")),
            ),
            "MiB up, with a length": (
                self.timed("-T", to("large.tar"), self.archive("path=whole")),
                self.timed("-T", to("large"), self.raw("large")),
            ),
            "MiB up, chunked": (
                self.timed("-T", to("large.tar"), "-H", "Transfer-Encoding: chunked", self.archive("path=whole")),
                self.timed("-T", to("large"), "-H", "Transfer-Encoding: chunked", self.raw("large")),
            ),
            "MiB down": (
                self.timed("-o", null, self.archive("path=whole")),
                self.timed("-o", null, self.raw("large")),
            ),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    gateway = Gateway(os.path.abspath(options.build), backend=options.backend)
    scratch = tempfile.mkdtemp(prefix="bench-archive-", dir=gateway.dir)
    try:
        bench = Bench(gateway, scratch, options)
        bench.round()
        rounds = [bench.round() for _ in range(options.rounds)]
        for name in rounds[0]:
            archive, base = (statistics.median(one[name][i] for one in rounds) for i in (0, 1))
            amount = options.files if name.startswith("files") else options.mib
            ratio = statistics.median(one[name][1] / one[name][0] for one in rounds)
            print(f"{name:24} {amount / archive:9.0f}/s   over {amount / base:9.0f}/s   {ratio:6.2f} ×", flush=True)
    finally:
        gateway.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
