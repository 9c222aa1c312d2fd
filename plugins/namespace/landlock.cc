#include "plugins/namespace/landlock.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace isogate::ns {
namespace {

// <linux/landlock.h> of Debian 12 ends at version 2.
constexpr uint64_t kWriteFile = 1u << 1, kRemoveDir = 1u << 4, kRemoveFile = 1u << 5, kMakeChar = 1u << 6,
                   kMakeDir = 1u << 7, kMakeReg = 1u << 8, kMakeSock = 1u << 9, kMakeFifo = 1u << 10,
                   kMakeBlock = 1u << 11, kMakeSym = 1u << 12, kRefer = 1u << 13, kTruncate = 1u << 14,
                   kIoctlDevice = 1u << 15;
constexpr uint64_t kScopeSignal = 1u << 1;

struct Ruleset {
  uint64_t files, network, scoped;
};
struct Beneath {
  uint64_t allowed;
  int32_t directory;
} __attribute__((packed));

// Reading and executing are left to the mounts: what is not handled costs nothing at each open.
uint64_t handled(int version) {
  uint64_t access = kWriteFile | kRemoveDir | kRemoveFile | kMakeChar | kMakeDir | kMakeReg | kMakeSock |
                    kMakeFifo | kMakeBlock | kMakeSym | kRefer;
  if (version >= 3) access |= kTruncate;
  if (version >= 5) access |= kIoctlDevice;
  return access;
}

Result<void> allow(const Fd& ruleset, const char* path, uint64_t access) {
  const Fd directory(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return os_error(std::string("cannot open the sandbox's ") + path, errno);
  const Beneath rule = {access, directory.get()};
  if (::syscall(SYS_landlock_add_rule, ruleset.get(), 1 /* PATH_BENEATH */, &rule, 0) != 0)
    return os_error(std::string("cannot add a Landlock rule for the sandbox's ") + path, errno);
  return {};
}

}  // namespace

int landlock_version() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1 /* VERSION */);
  return version < 0 ? 0 : static_cast<int>(version);
}

Result<Fd> make_ruleset() {
  const int version = landlock_version();
  if (version < 2) return Fd();
  const uint64_t access = handled(version);
  const Ruleset attributes = {access, 0, version >= 6 ? kScopeSignal : 0};
  const size_t size = version >= 6 ? sizeof attributes : sizeof attributes.files;
  Fd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset) return os_error("cannot make a Landlock ruleset", errno);
  const uint64_t no_devices = access & ~(kMakeChar | kMakeBlock | kIoctlDevice);
  for (const char* path : {"/workspace", "/tmp"}) {
    if (auto allowed = allow(ruleset, path, no_devices); !allowed) return allowed.error();
  }
  // Of /dev, which is read-only, and of /dev/shm, which is mounted there later.
  if (auto allowed = allow(ruleset, "/dev", access & ~(kMakeChar | kMakeBlock)); !allowed)
    return allowed.error();
  return ruleset;
}

}  // namespace isogate::ns
