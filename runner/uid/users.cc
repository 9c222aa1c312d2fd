#include "runner/uid/users.h"

#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <vector>

#include "lib/text.h"

namespace isogate {
namespace {

using UserLookup = std::function<int(passwd*, char*, size_t, passwd**)>;

// nullopt: not in the database.
Result<std::optional<User>> look_up(const UserLookup& lookup) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  int code = lookup(&entry, buffer.data(), buffer.size(), &found);
  while (code == ERANGE && buffer.size() < (1U << 20)) {
    buffer.resize(buffer.size() * 2);
    code = lookup(&entry, buffer.data(), buffer.size(), &found);
  }
  if (found != nullptr) return std::optional<User>(User{{true, entry.pw_uid, entry.pw_gid}, entry.pw_name});
  if (code == 0 || code == ENOENT || code == ESRCH) return std::optional<User>();
  return os_error("cannot look up the user", code);
}

Result<std::optional<User>> by_uid(uint32_t uid) {
  return look_up([uid](passwd* entry, char* buffer, size_t size, passwd** found) {
    return ::getpwuid_r(uid, entry, buffer, size, found);
  });
}

}  // namespace

Result<User> find_user(std::string_view name_or_number) {
  if (::geteuid() != 0)
    return unsupported(
        "`user` needs a gateway that was started by root: here every program runs as the gateway's user");
  const std::string name(name_or_number);
  if (name.size() > 256 || name.find('\0') != std::string::npos)
    return invalid("the name in `user` holds a NUL byte, or is longer than 256 bytes");
  const uint32_t uid = number_in<uint32_t>(name).value_or(UINT32_MAX);
  const bool numeric = uid != UINT32_MAX;
  auto found =
      numeric ? by_uid(uid) : look_up([&name](passwd* entry, char* buffer, size_t size, passwd** result) {
        return ::getpwnam_r(name.c_str(), entry, buffer, size, result);
      });
  if (!found) return found.error();
  if (found->has_value()) return **found;
  if (numeric) return User{{true, uid, uid}, "agent"};
  return Error{ISOGATE_NOT_FOUND, 0, "there is no user `" + name + "` on this host"};
}

std::string own_name() {
  const auto found = by_uid(::geteuid());
  return found && found->has_value() ? (*found)->name : "agent";
}

}  // namespace isogate
