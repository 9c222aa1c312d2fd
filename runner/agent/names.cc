#include "runner/agent/names.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::agent {
namespace {

constexpr size_t kMost = 16u << 20;
constexpr const char *kPasswd = "/etc/passwd", *kGroup = "/etc/group";

// Empty: it is not there, or not for this user.
Result<std::string> read_names(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return std::string();
  if (!file) return os_error("cannot open `" + path + "`", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if (!S_ISREG(info.st_mode)) return invalid("`" + path + "` is not a regular file");
  return read_to_end(file.get(), kMost, "cannot read `" + path + "`");
}

Result<void> write_new(const std::string& path, std::string_view text) {
  ::unlink(path.c_str());  // of a run before
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return os_error("cannot write `" + path + "`", errno);
  if (!write_all(file.get(), text)) return os_error("cannot write `" + path + "`", errno);
  if (::fchmod(file.get(), 0444) != 0) return os_error("cannot close `" + path + "` to writers", errno);
  return {};
}

// The line comes first: the image may have another `agent`.
Result<void> copy_with(const std::string& from, const std::string& to, uint32_t number,
                       const std::string& line) {
  auto text = read_names(from);
  if (!text) return text.error();
  return write_new(to, name_of_number(*text, number) ? *text : line + *text);
}

}  // namespace

std::optional<std::string> name_of_number(std::string_view text, uint32_t number) {
  const std::string wanted = std::to_string(number);
  while (!text.empty()) {
    const auto fields = split(next_part(text, '\n'), ':');  // name:password:number:…
    if (fields.size() > 3 && !fields[0].empty() && fields[2] == wanted) return std::string(fields[0]);
  }
  return std::nullopt;
}

std::string own_name() {
  const auto text = read_names(kPasswd);
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
