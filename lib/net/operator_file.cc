#include "lib/net/operator_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate::net {
namespace {

[[noreturn]] void unusable_file(const std::string& path, const std::string& why) {
  throw sdk::Error(ISOGATE_INVALID_ARGUMENT, "cannot read `" + path + "`: " + why);
}

std::string own_name() {
  char text[4096];
  passwd entry{};
  passwd* found = nullptr;
  const uid_t uid = ::geteuid();
  if (::getpwuid_r(uid, &entry, text, sizeof text, &found) != 0 || found == nullptr)
    return "the user " + std::to_string(uid);
  return "the user `" + std::string(found->pw_name) + "`";
}

[[noreturn]] void unreadable(const std::string& path, int error) {
  std::string why = std::generic_category().message(error);
  if (error == EACCES || error == EPERM)
    why += ": it has to be readable by " + own_name() + ", as whom this process runs";
  unusable_file(path, why);
}

}  // namespace

std::optional<std::string> read_operator_file(const std::string& path) {
  constexpr size_t kMost = 1 << 20;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file) unreadable(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    unusable_file(path, "it is no regular file");
  auto text = read_to_end(file.get(), kMost, "cannot read `" + path + "`");
  if (!text) throw sdk::Error(ISOGATE_INVALID_ARGUMENT, text.error().message);
  return std::move(*text);
}

}  // namespace isogate::net
