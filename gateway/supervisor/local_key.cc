#include "gateway/supervisor/local_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "lib/fd.h"
#include "lib/hash.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate::supervisor {
namespace {

constexpr std::string_view kPrefix = "isg_";
constexpr size_t kKeyBytes = 32;
constexpr size_t kKeyDigits = 43;
constexpr const char* kName = "local.key";
constexpr const char* kNewName = "local.key.new";

bool is_key(std::string_view text) {
  return text.size() == kPrefix.size() + kKeyDigits && text.starts_with(kPrefix) &&
         is_alnum_or(text.substr(kPrefix.size()), "-_");
}

// Complete under another name first, so that a crash never leaves half a key.
Result<void> make_key(int dir, const std::string& path) {
  (void)::unlinkat(dir, kNewName, 0);
  const Fd file(::openat(dir, kNewName, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return os_error("cannot make `" + path + "`", errno);
  const std::string line = std::string(kPrefix) + base64url_encode(random_bytes(kKeyBytes)) + "\n";
  if (::fchmod(file.get(), 0600) != 0 || !write_all(file.get(), line) || ::fsync(file.get()) != 0)
    return os_error("cannot write `" + path + "`", errno);
  if (::renameat2(dir, kNewName, dir, kName, RENAME_NOREPLACE) != 0)
    return os_error("cannot put `" + path + "` in place", errno);
  return {};
}

Result<void> check_file(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if (!S_ISREG(info.st_mode)) return invalid("refusing `" + path + "`: it is no regular file");
  if (info.st_uid != ::geteuid())
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "refusing `" + path + "`: it belongs to uid " + std::to_string(info.st_uid) +
                     "; correct it with: chown " + std::to_string(::geteuid()) + " '" + path + "'"};
  if ((info.st_mode & 077u) != 0)
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "refusing `" + path +
                     "`: others may read it, so the key may be known; correct it with: rm '" + path +
                     "' (a new key is made), or, if you are sure: chmod 0600 '" + path + "'"};
  return {};
}

}  // namespace

Result<std::string> local_key_sha256(int state_dir, const std::string& state_path) {
  const std::string path = state_path + "/" + kName;
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Fd file(::openat(state_dir, kName, flags));
  if (!file && errno == ENOENT) {
    if (auto made = make_key(state_dir, path); !made) return made.error();
    file.reset(::openat(state_dir, kName, flags));
  }
  if (!file) return os_error("cannot open `" + path + "`", errno);
  if (auto checked = check_file(file.get(), path); !checked) return checked.error();
  std::array<char, 128> buffer{};
  const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
  if (n < 0) return os_error("cannot read `" + path + "`", errno);
  std::string_view key(buffer.data(), static_cast<size_t>(n));
  if (key.ends_with('\n')) key.remove_suffix(1);
  if (!is_key(key)) return invalid("`" + path + "` holds no key; remove it, and a new one is made");
  register_secret(key);
  return sha256_hex(key);
}

}  // namespace isogate::supervisor
