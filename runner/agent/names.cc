#include "runner/agent/names.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lib/fd.h"

namespace isogate::agent {
namespace {

constexpr size_t kMost = 16u << 20;
constexpr const char *kPasswd = "/etc/passwd", *kGroup = "/etc/group";

// Empty: it is missing, or this user may not read it.
Result<std::string> read_all(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return std::string();
  if (!file) return os_error("cannot open `" + path + "`", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if (!S_ISREG(info.st_mode)) return invalid("`" + path + "` is not a regular file");
  std::string text;
  for (char part[65536];;) {
    const ssize_t n = ::read(file.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("cannot read `" + path + "`", errno);
    if (n == 0) return text;
    text.append(part, static_cast<size_t>(n));
    if (text.size() > kMost) return invalid("`" + path + "` is larger than 16 MiB");
  }
}

Result<void> write_all(const std::string& path, std::string_view text) {
  ::unlink(path.c_str());  // of an earlier run
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return os_error("cannot write `" + path + "`", errno);
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return os_error("cannot write `" + path + "`", errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::fchmod(file.get(), 0444) != 0) return os_error("cannot close `" + path + "` to writers", errno);
  return {};
}

// The line comes first: the image may have another `agent`.
Result<void> copy_with(const std::string& from, const std::string& to, uint32_t number,
                       const std::string& line) {
  auto text = read_all(from);
  if (!text) return text.error();
  return write_all(to, name_of_number(*text, number) ? *text : line + *text);
}

}  // namespace

std::optional<std::string> name_of_number(std::string_view text, uint32_t number) {
  const std::string wanted = std::to_string(number);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);  // name:password:number:…
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    const size_t third = second == std::string_view::npos ? second : line.find(':', second + 1);
    if (first == 0 || third == std::string_view::npos) continue;
    if (line.substr(second + 1, third - second - 1) == wanted) return std::string(line.substr(0, first));
  }
  return std::nullopt;
}

std::string own_name() {
  const auto text = read_all(kPasswd);
  return (text ? name_of_number(*text, ::geteuid()) : std::nullopt).value_or("agent");
}

Result<void> write_names(const std::string& passwd, const std::string& group) {
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  auto written =
      copy_with(kPasswd, passwd, ::geteuid(), "agent:x:" + uid + ":" + gid + "::/workspace:/bin/sh\n");
  if (written) written = copy_with(kGroup, group, ::getegid(), "agent:x:" + gid + ":\n");
  return written;
}

}  // namespace isogate::agent
