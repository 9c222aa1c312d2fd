#include "runner/files/workspace_state.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_stage.h"

namespace isogate {

Result<Fd> checked_directory(int fd, const char* what, bool private_to_us) {
  if (fd < 0) return os_error(std::string("cannot open ") + what, -fd);
  Fd dir(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return os_error(std::string("cannot look at ") + what, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & (private_to_us ? 0077 : 0022)) != 0)
    return denied(std::string("refusing ") + what + ": it must belong to the gateway's user " +
                  (private_to_us ? "alone" : "and be writable by no other"));
  return dir;
}

Result<Fd> open_state_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return checked_directory(fd < 0 ? -errno : fd, "a directory of the gateway's state");
}

Result<Fd> open_sandbox_directory(int sandboxes, const std::string& sandbox_id) {
  return checked_directory(resolve_child(sandboxes, sandbox_id, O_RDONLY | O_DIRECTORY),
                           "the directory of the sandbox");
}

Result<std::optional<std::string>> read_state_file(int dir, const std::string& name) {
  const Fd file(resolve_child(dir, name, O_RDONLY | O_NONBLOCK));
  if (file.get() == -ENOENT) return std::optional<std::string>();
  if (!file) return os_error("cannot open the sandbox's file `" + name + "`", -file.get());
  auto text = read_to_end(file.get(), size_t{64} << 10, "cannot read the sandbox's file `" + name + "`");
  if (!text) return text.error();
  if (text->ends_with('\n')) text->pop_back();
  return std::optional<std::string>(std::move(*text));
}

namespace {

Result<int> commit_state_file(int dir, const std::string& name, const std::string& content, bool exclusive) {
  const std::string attempt = "cannot record the sandbox's `" + name + "`";
  auto staged = StagedFile::create(dir, Identity(), true);
  if (!staged) return staged.error();
  if (!write_all(staged->fd(), content + "\n") || ::fchmod(staged->fd(), 0600) != 0 ||
      ::fdatasync(staged->fd()) != 0)
    return os_error(attempt, errno);
  const int code = staged->commit(dir, name, exclusive);
  if (code < 0 && code != -EEXIST) return os_error(attempt, -code);
  return code;
}

}  // namespace

Result<bool> create_state_file(int dir, const std::string& name, const std::string& content) {
  const auto code = commit_state_file(dir, name, content, true);
  if (!code) return code.error();
  return *code == 0;
}

Result<void> replace_state_file(int dir, const std::string& name, const std::string& content) {
  const auto code = commit_state_file(dir, name, content, false);
  if (!code) return code.error();
  return {};
}

}  // namespace isogate
