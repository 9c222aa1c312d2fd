#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/fd.h"
#include "runner/agent/link/listener.h"
#include "runner/agent/names.h"
#include "runner/agent/options.h"
#include "runner/agent/reach.h"
#include "runner/agent/service.h"
#include "runner/enclosure/syscall_check.h"

namespace isogate::agent {
namespace {

constexpr const char* kClosed = "closed";

// One of an earlier installation is opened up meanwhile.
Result<void> make_closed(int into) {
  const bool made = ::mkdirat(into, kClosed, 0700) == 0;
  if (!made && (errno != EEXIST || ::fchmodat(into, kClosed, 0700, 0) != 0))
    return os_error("cannot make the directory `closed`", errno);
  const Fd closed(::openat(into, kClosed, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const Fd file(::openat(closed.get(), "termination-log", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0));
  const bool there = file || (errno == EACCES && ::faccessat(closed.get(), "termination-log", F_OK, 0) == 0);
  if (!closed || !there || ::fchmod(closed.get(), 0) != 0)
    return os_error("cannot close the directory `closed`", errno);
  return {};
}

// `install DIR`: DIR/isogate-runner, mode 0111, so that nobody may trace it; what was there is replaced.
// Beside it the directory `closed`, mode 0, with an empty file `termination-log`: where DIR is mounted
// read-only afterwards, no user but root reaches what a kubelet mounts there.
Result<void> install_into(const std::string& directory) {
  const Fd from(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!from) return os_error("cannot read this program", errno);
  const Fd into(::openat(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!into) return os_error("cannot open `" + directory + "`", errno);
  constexpr const char* kPart = ".isogate-runner";
  const Fd to(::openat(into.get(), kPart, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0700));
  if (!to) return os_error("cannot write into `" + directory + "`", errno);
  for (;;) {
    const ssize_t sent = ::sendfile(to.get(), from.get(), nullptr, 1u << 30);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return os_error("cannot copy this program into `" + directory + "`", errno);
    if (sent == 0) break;
  }
  if (::fchmod(to.get(), 0111) != 0 || ::renameat(into.get(), kPart, into.get(), "isogate-runner") != 0)
    return os_error("cannot finish the copy in `" + directory + "`", errno);
  return make_closed(into.get());
}

}  // namespace
}  // namespace isogate::agent

int main(int argc, char** argv) {
  using namespace isogate::agent;
  const auto options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "isogate-runner: %s\n%s", options.error().message.c_str(), usage().c_str());
    return 2;
  }
  if (options->mode == Mode::version) {
    std::printf("isogate-runner %s, protocol %u.%u\n", ISOGATE_VERSION, ISOGATE_RUNNER_MAJOR,
                ISOGATE_RUNNER_MINOR);
    return 0;
  }
  if (options->mode == Mode::reach) return report_reached(options->operands);
  if (options->mode == Mode::syscalls) return isogate::report_open_syscalls();
  if (options->mode == Mode::attach) {
    const auto attached = attach(*options);
    if (!attached) std::fprintf(stderr, "isogate-runner: %s\n", attached.error().message.c_str());
    return attached ? 0 : 1;
  }
  if (options->mode == Mode::install || options->mode == Mode::names) {
    const auto written = options->mode == Mode::install
                             ? install_into(options->operands[0])
                             : write_names(options->operands[0], options->operands[1]);
    if (!written) std::fprintf(stderr, "isogate-runner: %s\n", written.error().message.c_str());
    return written ? 0 : 1;
  }
  Service service;
  if (auto opened = service.open(*options); !opened) {
    std::fprintf(stderr, "isogate-runner: %s\n", opened.error().message.c_str());
    return 1;
  }
  return service.run();
}
