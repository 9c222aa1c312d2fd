#include "gateway/host/plugin/describe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "gateway/base/privileges.h"
#include "gateway/config/schema.h"
#include "gateway/host/plugin/plugin_loader.h"
#include "lib/fd.h"
#include "lib/program.h"

namespace isogate {
namespace {

constexpr int kPipe = 3;
constexpr size_t kMaxOutput = 4u << 20;
constexpr auto kPatience = std::chrono::seconds(15);  // for a busy machine: RLIMIT_CPU is 5 s
using Clock = std::chrono::steady_clock;

std::string name_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.size() > 3 && name.ends_with(".so")) name.resize(name.size() - 3);
  return name.substr(0, 255);
}

// Between fork and exec: only system calls.
[[noreturn]] void become_child(const char* executable, int directory, int in, int out) {
  int null = ::open("/dev/null", O_RDWR);
  int kept_in = ::fcntl(in, F_DUPFD, 10);
  int kept_out = ::fcntl(out, F_DUPFD, 10);
  bool ready = null >= 0 && kept_in >= 0 && kept_out >= 0 && ::fchdir(directory) == 0 &&
               ::dup2(kept_in, 0) == 0 && ::dup2(null, 1) == 1 && ::dup2(null, 2) == 2 &&
               ::dup2(kept_out, kPipe) == kPipe && ::syscall(SYS_close_range, kPipe + 1, ~0U, 0) == 0 &&
               ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  char role[] = "_describe";
  char program[] = "isogate";
  char* const argv[] = {program, role, nullptr};
  char* const env[] = {nullptr};
  if (ready) ::execve(executable, argv, env);
  ::_exit(126);
}

struct Child {
  pid_t pid = -1;
  Fd out;
};

// The child reads the plugin's name, for its messages, from stdin.
Result<Child> start_child(const std::string& executable, int directory, const std::string& name) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  auto name_pipe = make_pipe();
  if (!name_pipe) return name_pipe.error();
  if (::write(name_pipe->write.get(), name.data(), name.size()) < 0)
    return os_error("cannot write to a pipe", errno);
  pid_t pid = ::fork();
  if (pid < 0) return os_error("cannot start a process to describe the plugin", errno);
  if (pid == 0) become_child(executable.c_str(), directory, name_pipe->read.get(), pipe->write.get());
  return Child{pid, std::move(pipe->read)};
}

int remaining_ms(Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

enum class Stop { kEnd, kTime, kFlood };

Stop read_output(int fd, Clock::time_point deadline, std::string& output) {
  for (;;) {
    pollfd watch{fd, POLLIN, 0};
    int left = remaining_ms(deadline);
    int n = ::poll(&watch, 1, left);
    if (n == 0 || left == 0) return Stop::kTime;
    if (n < 0) continue;
    char buffer[16384];
    ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Stop::kEnd;
    if (output.size() + static_cast<size_t>(got) > kMaxOutput) return Stop::kFlood;
    output.append(buffer, static_cast<size_t>(got));
  }
}

// nullopt: still running at the deadline, and killed.
std::optional<int> wait_for(pid_t pid, Clock::time_point deadline) {
  const Fd process = watch_process(pid);
  pollfd watch{process.get(), POLLIN, 0};
  int ready = 0;
  while (process && (ready = ::poll(&watch, 1, remaining_ms(deadline))) < 0 && errno == EINTR) {
  }
  if (ready <= 0) ::kill(pid, SIGKILL);
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (process && ready <= 0) return std::nullopt;
  return process && ended == pid ? status : 126 << 8;
}

Error broken(const std::string& path, const std::string& what) {
  return invalid("plugin `" + name_of(path) + "` (" + path + ") is broken: " + what);
}

Result<Description> judge(const std::string& path, std::optional<int> status, Stop stop,
                          const std::string& output) {
  bool too_long = !status || (WIFSIGNALED(*status) && WTERMSIG(*status) == SIGXCPU);
  if (stop == Stop::kFlood) return broken(path, "it wrote more than a description where one was expected");
  if (too_long)
    return broken(
        path,
        "it did not describe itself within 15 s, or took 5 s of a processor; look at its constructors, its "
        "static objects and its config schema");
  if (WIFSIGNALED(*status))
    return broken(path, "it crashed while it was loaded (signal " + std::to_string(WTERMSIG(*status)) + ", " +
                            ::strsignal(WTERMSIG(*status)) +
                            "), or its config schema refers to itself without end");
  if (WEXITSTATUS(*status) == 126)
    return Error{ISOGATE_INTERNAL, 0,
                 "cannot start the process that describes plugin `" + name_of(path) + "`"};
  if (output.empty())
    return broken(path, "it ended the process while it was loaded (exit code " +
                            std::to_string(WEXITSTATUS(*status)) + ")");
  auto described = unpack(output);
  if (!described) described.error().message += " (" + path + ")";
  return described;
}

void add_warnings(const ElfFacts& elf, Description& description) {
  for (const std::string& name : elf.exports)
    if (name != ISOGATE_PLUGIN_ENTRY_NAME)
      description.warnings.push_back("it also exports `" + name +
                                     "`; a plugin exports its entry alone (link with a version script)");
  for (const std::string& path : elf.search_paths)
    description.warnings.push_back("it looks for libraries in `" + path +
                                   "`, which must exist where it runs");
}

// Compiles it and applies it once: a schema that refers to itself without end, or that takes for ever, ends
// this process and not one that has more to lose.
Result<void> check_config_schema(const Description& described) {
  if (!described.takes_config) return {};
  return check_schema(described.config_schema_json, "plugin `" + described.id + "`");
}

std::string told_name() {
  char buffer[256];
  ssize_t n = ::read(0, buffer, sizeof buffer);
  return std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0);
}

// A temporary place for one copy, for a command that has no state directory.
class TemporaryDir {
 public:
  TemporaryDir() {
    if (::mkdtemp(path_) == nullptr) path_[0] = '\0';
  }
  ~TemporaryDir() {
    if (path_[0] != '\0') ::rmdir(path_);
  }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/isogate-describe-XXXXXX";
};

}  // namespace

Result<Description> describe_copy(const PluginImage& image, const PluginCopy& copy,
                                  const std::string& executable) {
  auto child = start_child(executable, copy.directory(), name_of(image.path));
  if (!child) return child.error();
  auto deadline = Clock::now() + kPatience;
  std::string output;
  Stop stop = read_output(child->out.get(), deadline, output);
  auto status = wait_for(child->pid, stop == Stop::kEnd ? deadline : Clock::now());
  auto described = judge(image.path, status, stop, output);
  if (!described) return described;
  described->path = image.path;
  described->sha256 = image.sha256;
  add_warnings(image.elf, *described);
  return described;
}

Result<Description> describe_plugin(const std::string& path, const std::string& pin,
                                    const std::string& copy_dir, const std::string& executable) {
  auto image = inspect_plugin(path, pin);
  if (!image) return image.error();
  std::optional<TemporaryDir> temporary;
  if (copy_dir.empty()) temporary.emplace();
  auto copy = make_copy(*image, temporary ? temporary->path() : copy_dir);
  if (!copy) return copy.error();
  return describe_copy(*image, *copy, executable);
}

int describe_child_main() {
  auto describe = []() -> Result<Description> {
    Fd here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (auto quarantined = enter_quarantine(); !quarantined) return quarantined.error();
    auto loaded = load_plugin(here.get(), told_name());
    if (!loaded) return loaded.error();
    if (auto usable = check_config_schema(loaded->description); !usable) return usable.error();
    return std::move(loaded->description);
  };
  ::_exit(write_all(kPipe, pack(describe())) ? 0 : 1);  // no exit handler of the plugin runs
}

}  // namespace isogate
