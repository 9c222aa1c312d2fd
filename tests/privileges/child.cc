#include "tests/privileges/child.h"

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "lib/fd.h"

namespace isogate::test {

ChildEnd in_child(const std::function<std::string()>& body) {
  auto pipe = make_pipe();
  if (!pipe) return {pipe.error().message, -1, 0};
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string said = body();
    const bool whole =
        ::write(pipe->write.get(), said.data(), said.size()) == static_cast<ssize_t>(said.size());
    ::_exit(whole ? 0 : 99);
  }
  pipe->write.reset();
  ChildEnd end;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(pipe->read.get(), buffer, sizeof buffer)) > 0;)
    end.said.append(buffer, static_cast<size_t>(n));
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.term_signal = WTERMSIG(status);
  return end;
}

ChildEnd in_ordinary_child(const std::function<std::string()>& body) {
  return in_child([&]() -> std::string {
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(65534, 65534, 65534) != 0 ||
                             ::setresuid(65534, 65534, 65534) != 0))
      return "cannot become an ordinary user";
    return body();
  });
}

std::string status_line(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key + ":")) continue;
    const size_t start = line.find_first_not_of(" \t", key.size() + 1);
    if (start == std::string::npos) return "";
    return line.substr(start, line.find_last_not_of(" \t") - start + 1);
  }
  return "no line " + key;
}

}  // namespace isogate::test
