#!/usr/bin/env python3
"""Runs tests in a guest of Debian's own kernel that has cgroup v2 and nothing else, without KVM.

usage: run.py BUILD_DIR CACHE_DIR

The guest's files are this machine's: the tests, what they are linked with, and the packages below. Its kernel comes
from Debian's package, unpacked into CACHE_DIR and never installed. Its process 1 is systemd. First, service.py uses the
installed service as an operator does. Then the cases below run where a unit with Delegate=yes and the gateway's own start
would put them: in a group of a delegated cgroup. A case that skips in there fails: what it needs is there.
"""

import lzma
import os
import pathlib
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile

PYTHON = f"python3.{sys.version_info.minor}"
PACKAGES = f"""bash coreutils dash e2fsprogs findutils grep hostname iproute2 libc-bin lib{PYTHON}-minimal
    lib{PYTHON}-stdlib mount procps python3-minimal {PYTHON}-minimal sed systemd
    util-linux xfsprogs""".split()
PROGRAMS = ["isogate", "faults_test", "namespace_test", "plugin_common_test", "runner_bomb", "runner_host", "runner_test"]
# The cases of each program that are about cgroups, may end differently on another kernel, or set the clock.
CASES = {
    "runner_test": "CgroupDetectTest.*:DelegatedCgroup.*:EnclosureTest.*:Each/HostDeathTest.*:Each/LimitsTest.*:NestedLimits.*:SweepTest.*"
                   "-*cpu_limit_is_in_force*:"  # its 0.3% of a processor take minutes
                   # hundreds of processes each, and no cgroup
                   "*many_at_once:*a_run_that_left_something_is_followed_in_others:*a_signal_that_came_late_is_nobodys",
    "faults_test": "By/ClockJump.*",
    "namespace_test": "KernelAttack.*:Limits.*-*ByStarvingItsReaper:*ScratchIsBounded*",  # an emulated processor is too slow for time limits
    "plugin_common_test": "On/ProjectQuotaTest.*",
}
# With their dependencies, in the order in which they are loaded; modules that are built into the kernel are missing.
MODULES = "loop quota_tree quota_v2 crc32c_generic libcrc32c xfs".split()
SILENCE_SEC = 400  # of the console: how long all of it takes depends on the machine
MEMORY = "2048M"
SKIPPED = 77  # as ctest expects
KERNELS = re.compile(r"(?<=.)\[ *\d+\.\d{6}\] .*")  # a message of the kernel may follow in the line of a program

INIT = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin
if [ "$1" != moved ]; then
  mkdir -p /new && mount -t tmpfs -o size=1200m,mode=755 none /new
  cp -a $(ls -A -d /* | grep -v -x /new) /new/
  exec switch_root /new /init moved
fi
for module in $(cat /guest/modules/order); do
  python3 -c 'import ctypes, os, sys
sys.exit(ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b"", 0))' /guest/modules/$module || echo "guest: cannot load $module"
done
exec /lib/systemd/systemd
"""

# The console is the only way out.
UNITS = {
    "guest.target": "[Unit]\nRequires=guest-service.service guest-cases.service\nAllowIsolate=yes\n",
    "guest-service.service": "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nEnvironment=HOME=/root\n"
                             "StandardOutput=file:/dev/console\nStandardError=inherit\n"
                             f"ExecStart=-/usr/bin/{PYTHON} /guest/service.py\n",
    "guest-cases.service": "[Unit]\nAfter=guest-service.service\n"
                           "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nDelegate=yes\nTasksMax=infinity\n"
                           "Environment=HOME=/root ISOGATE_TEST_OWN_CLOCK=1\n"
                           "StandardOutput=file:/dev/console\nStandardError=inherit\nExecStart=/guest/cases\n",
}

BEFORE_CASES = """#!/bin/bash
cd /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup) && mkdir gateway && echo $$ > gateway/cgroup.procs
cd / && echo "guest: $(uname -r), in $(cat /proc/self/cgroup)"
"""


def said(argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def kernel(cache):
    """The kernel of Debian's smallest package for virtual machines, from the cache if it is there."""
    package = re.search(r"Depends: (linux-image-\S+)", said(["apt-cache", "depends", "linux-image-cloud-amd64"])).group(1)
    image, modules = cache / package.replace("linux-image-", "vmlinuz-"), cache / package.replace("linux-image-", "modules-")
    names = modules / "names"
    if image.exists() and names.exists() and names.read_text().split() == MODULES:
        return image, modules
    print(f"fetching {package}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "download", "-q", package], check=True, cwd=scratch, stdout=subprocess.DEVNULL)
        deb = next(pathlib.Path(scratch).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(deb), f"{scratch}/unpacked"], check=True)
        cache.mkdir(parents=True, exist_ok=True)
        part, some = image.with_suffix(".part"), modules.with_suffix(".part")
        shutil.rmtree(some, ignore_errors=True)
        some.mkdir()
        for name in MODULES:
            for found in pathlib.Path(scratch).glob(f"unpacked/**/modules/*/kernel/**/{name}.ko*"):
                raw = found.read_bytes()
                (some / f"{name}.ko").write_bytes(lzma.decompress(raw) if found.suffix == ".xz" else raw)
        if not any(some.iterdir()):
            raise RuntimeError(f"{package} has none of the modules: {MODULES}")
        (some / "names").write_text(" ".join(MODULES))
        shutil.rmtree(modules, ignore_errors=True)
        some.rename(modules)
        shutil.copy(next(pathlib.Path(scratch).glob("unpacked/boot/vmlinuz-*")), part)
        part.rename(image)
    return image, modules


def files_of_packages():
    files = set()
    for line in said(["dpkg", "-L", *PACKAGES]).splitlines():
        if os.path.isfile(line) and not line.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale")):
            files.add(line)
    return files


def libraries_of(programs):
    found = set()
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True)
        found.update(re.findall(r"(/\S+) \(0x", done.stdout))
    return found


def place(root, path, strip=False):
    """Copies one file to the same place, the directories that are links to another (/bin) followed."""
    real = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
    target = root / real.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if strip:
        subprocess.run(["strip", "--strip-debug", "-o", str(target), path], check=True)
    elif not target.exists():
        shutil.copy2(path, target, follow_symlinks=False)
        if os.path.islink(path):
            place(root, os.path.realpath(path))


def fill(root, build, modules):
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to("usr/" + name)
    for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "var/lib",
                 "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "guest/modules").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    order = [found.name for name in MODULES for found in modules.glob(f"{name}.ko*")]
    for name in order:
        shutil.copy2(modules / name, root / "guest/modules" / name)
    (root / "guest/modules/order").write_text("\n".join(order) + "\n")
    for name in ("group", "ld.so.cache", "nsswitch.conf", "passwd"):
        shutil.copy2("/etc/" + name, root / "etc" / name)
    own = [str(build / "bin" / name) for name in PROGRAMS] + [str(path) for path in (build / "plugins").glob("*.so")]
    for path in own:
        place(root, path, strip=True)
    files = files_of_packages()
    programs = own + [path for path in files if os.access(path, os.X_OK) or ".so" in path]
    for path in sorted(files | libraries_of(programs)):
        place(root, path)
    subprocess.run(["cmake", "--install", str(build), "--strip", "--prefix", "/usr/local"], check=True,
                   env=os.environ | {"DESTDIR": str(root)}, stdout=subprocess.DEVNULL)
    shutil.copy2(pathlib.Path(__file__).with_name("service.py"), root / "guest/service.py")
    (root / "etc/systemd/system").mkdir(parents=True)
    for name, unit in UNITS.items():
        (root / "etc/systemd/system" / name).write_text(unit)
    (root / "etc/machine-id").write_text("0" * 31 + "1\n")  # without one, systemd asks on the console for more
    lines = [BEFORE_CASES]
    for name, cases in CASES.items():
        command = shlex.join([str(build / "bin" / name), "--gtest_color=no", "--gtest_filter=" + cases])
        lines.append(f"{command}; echo \"guest: {name} ended with $?\"\n")
    lines.append("sleep 1\necho o > /proc/sysrq-trigger\nsleep 60\n")  # the console has all of it then
    for path, text in {"init": INIT, "guest/cases": "".join(lines)}.items():
        (root / path).write_text(text)
        (root / path).chmod(0o755)


def archive(root, image):
    with open(image, "wb") as out:
        find = subprocess.Popen(["find", ".", "-print0"], cwd=root, stdout=subprocess.PIPE)
        subprocess.run(["cpio", "--null", "--create", "--format=newc", "--owner=0:0", "--quiet"], cwd=root, stdin=find.stdout, stdout=out, check=True)
        find.wait()


def run(image, initrd):
    """The output of the guest's console, line by line as it arrives."""
    argv = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", MEMORY,
            "-kernel", str(image), "-initrd", str(initrd), "-append", "console=ttyS0 quiet panic=-1 rdinit=/init systemd.unit=guest.target systemd.show_status=no",
            "-no-reboot", "-nographic", "-monitor", "none", "-serial", "stdio", "-nic", "none"]
    guest = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    lines, rest = [], b""
    try:
        while select.select([guest.stdout], [], [], SILENCE_SEC)[0]:
            piece = os.read(guest.stdout.fileno(), 65536)
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole if piece else [rest]:
                print(line.decode(errors="replace").rstrip(), flush=True)
                lines.append(KERNELS.sub("", line.decode(errors="replace")).strip())
            if not piece:
                break
        else:
            print(f"the guest was silent for {SILENCE_SEC} s and is stopped", flush=True)
    finally:
        guest.kill()
        guest.wait()
    return lines


def main():
    machine = os.uname().machine
    if machine != "x86_64":
        print(f"skipped: the guest is one of x86_64, this is {machine}")
        return SKIPPED
    build, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    image, modules = kernel(cache)
    with tempfile.TemporaryDirectory(prefix="isogate-guest.") as scratch:
        root = pathlib.Path(scratch) / "root"
        root.mkdir(mode=0o755)
        fill(root, build, modules)
        archive(root, f"{scratch}/initrd")
        shutil.rmtree(root)
        lines = run(image, f"{scratch}/initrd")
    wrong = [line for line in lines if "[  SKIPPED ]" in line or "[  FAILED  ]" in line]
    wrong += [name for name in ["service.py", *CASES] if f"guest: {name} ended with 0" not in lines]
    if not any(line.endswith("in 0::/system.slice/guest-cases.service/gateway") for line in lines):
        wrong.append("the cases ran in another cgroup")
    for line in wrong:
        print("wrong in the guest:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
