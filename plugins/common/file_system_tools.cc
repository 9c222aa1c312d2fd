#include "plugins/common/file_system_tools.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "lib/program.h"
#include "runner/files/disk_quota.h"

namespace isogate {
namespace {

constexpr const char* kFolders[] = {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"};
constexpr std::chrono::hours kPatience{
    1};                              // for a check of a large image; one that is killed leaves it damaged
constexpr size_t kMostOutput = 400;  // of stdout and stderr, the beginning
constexpr int kMostLoops = 64;       // attempts, where others take free devices first

std::string found(const char* tool) {
  for (const char* folder : kFolders)
    if (::access((std::string(folder) + tool).c_str(), X_OK) == 0) return std::string(folder) + tool;
  return "";
}

// It holds the lock of the image, too: nobody else takes one that a tool still works on.
Result<ProgramEnd> run(const char* tool, const Fd& image, std::vector<std::string> arguments) {
  Program program;
  program.path = found(tool);
  if (program.path.empty())
    return unsupported(std::string("there is no ") + tool + " on this host: install e2fsprogs");
  arguments.insert(arguments.begin(), program.path);
  program.arguments = std::move(arguments);
  program.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
  program.files = {Program::kNull, Program::kOutput, Program::kOutput, image.get()};
  program.time = kPatience;
  program.most_output = kMostOutput;
  program.drops_output = true;
  auto end = run_program(std::move(program));
  if (end)
    std::ranges::replace_if(
        end->output, [](char c) { return c < ' '; }, ' ');
  return end;
}

bool was_killed(const ProgramEnd& end) {
  return end.how != ProgramEnd::How::kEnded || WIFSIGNALED(end.wait_status);
}

Error failed(const char* tool, const ProgramEnd& end, isogate_status status, const std::string& remedy) {
  const std::string how = was_killed(end) ? "was killed" : "failed with " + std::to_string(end.exit_code());
  return {status, 0, std::string(tool) + " " + how + ": " + end.output + remedy};
}

Result<void> check(const std::string& path, const Fd& image, bool forced) {
  std::vector<std::string> arguments = {"-p", path};
  if (forced) arguments.insert(arguments.begin(), "-f");
  const auto end = run("e2fsck", image, std::move(arguments));
  if (!end) return end.error();
  if (!was_killed(*end) && end->exit_code() <= 1) return {};  // 1: it was repaired
  return failed("e2fsck", *end, ISOGATE_IO,
                "; the sandbox stays closed until somebody repairs its disk image with e2fsck, or purges it");
}

// The device is free again when the last descriptor and the last mount of it are gone.
Result<Fd> attach(const Fd& image, std::string& device) {
  const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) return os_error("cannot open /dev/loop-control", errno);
  for (int tries = 0; tries < kMostLoops; ++tries) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return os_error("cannot get a loop device", errno);
    device = "/dev/loop" + std::to_string(number);
    Fd loop(::open(device.c_str(), O_RDWR | O_CLOEXEC));
    if (!loop) return os_error("cannot open " + device, errno);
    loop_config wanted = {};
    wanted.fd = static_cast<uint32_t>(image.get());
    wanted.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(loop.get(), LOOP_CONFIGURE, &wanted) == 0) return loop;
    if (errno != EBUSY) return os_error("cannot attach a loop device", errno);
  }
  return Error{ISOGATE_UNAVAILABLE, EBUSY, "others take every loop device that is free; try again"};
}

}  // namespace

std::string why_no_loop_file_systems() {
  for (const char* tool : {"mkfs.ext4", "e2fsck", "resize2fs"})
    if (found(tool).empty()) return std::string("there is no ") + tool + " on this host: install e2fsprogs";
  if (::access("/dev/loop-control", R_OK | W_OK) != 0)
    return "there is no /dev/loop-control: load the kernel module `loop`, or give the gateway's container "
           "that device";
  return "";
}

bool is_file_system_of(const Fd& image, uint64_t bytes) {
  // Of its superblock: the count of blocks, their size, how many a group has, and whether the count has a
  // second half.
  unsigned char block[1024];
  if (::pread(image.get(), block, sizeof block, 1024) != static_cast<ssize_t>(sizeof block)) return false;
  const auto number = [&](size_t at) {
    return static_cast<uint64_t>(block[at]) | static_cast<uint64_t>(block[at + 1]) << 8 |
           static_cast<uint64_t>(block[at + 2]) << 16 | static_cast<uint64_t>(block[at + 3]) << 24;
  };
  constexpr uint64_t kMagic = 0xEF53, k64Bit = 0x80;
  if ((number(56) & 0xFFFF) != kMagic || number(24) > 6) return false;
  const uint64_t high = (number(96) & k64Bit) != 0 ? number(336) : 0;
  const uint64_t own = ((high << 32) | number(4)) << (10 + number(24));
  // e2fsprogs leave out a last group without room for its own tables, which are less than an eighth of it.
  const uint64_t group = number(32) << (10 + number(24)), rest = group == 0 ? 0 : bytes % group;
  return own == bytes || (rest < group / 8 && own == bytes - rest);
}

Result<void> make_file_system(const std::string& path, const Fd& image, uint64_t bytes) {
  if (::ftruncate(image.get(), static_cast<off_t>(bytes)) != 0)
    return os_error("cannot make a disk image of " + std::to_string(bytes) + " bytes", errno);
  const auto end = run("mkfs.ext4", image,
                       {"-q", "-F", "-m", "0", "-i", std::to_string(kBytesPerInode), "-E",
                        "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", path});
  if (!end) return end.error();
  if (was_killed(*end) || end->exit_code() != 0) return failed("mkfs.ext4", *end, ISOGATE_IO, "");
  return {};
}

Result<void> check_and_fit(const std::string& path, const Fd& image, uint64_t bytes) {
  struct stat info {};
  if (::fstat(image.get(), &info) != 0) return os_error("cannot look at the disk image", errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  const bool fits = size == bytes && is_file_system_of(image, bytes);
  if (auto checked = check(path, image, !fits); !checked || fits) return checked;
  if (size < bytes && ::ftruncate(image.get(), static_cast<off_t>(bytes)) != 0)
    return os_error("cannot grow the disk image", errno);
  const auto end = run("resize2fs", image, {path, std::to_string(bytes / 1024) + "K"});
  if (!end) return end.error();
  if (was_killed(*end) || end->exit_code() != 0) {
    const bool too_small = !was_killed(*end) && size > bytes;
    return failed("resize2fs", *end, too_small ? ISOGATE_UNSUPPORTED : ISOGATE_IO,
                  too_small
                      ? "; its files do not fit a disk_mb of " + std::to_string(bytes >> 20) + ": raise it"
                      : "; the disk of the sandbox cannot be made " + std::to_string(bytes >> 20) + " MiB");
  }
  if (size > bytes && ::ftruncate(image.get(), static_cast<off_t>(bytes)) != 0)
    return os_error("cannot shrink the disk image", errno);
  return {};
}

Result<void> mount_loop(const Fd& image, const std::string& target) {
  std::string device;
  const auto loop = attach(image, device);
  if (!loop) return loop.error();
  if (::mount(device.c_str(), target.c_str(), "ext4", MS_NOSUID | MS_NODEV, "errors=remount-ro") != 0)
    return os_error("cannot mount the sandbox's disk image", errno);
  return {};
}

}  // namespace isogate
