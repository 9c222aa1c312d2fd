#include "runner/resident/install.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runner/fd.h"

namespace isogate::resident {

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
  return {};
}

}  // namespace isogate::resident
