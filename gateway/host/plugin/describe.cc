#include "gateway/host/plugin/describe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "gateway/base/privileges.h"
#include "gateway/config/schema.h"
#include "gateway/host/plugin/plugin_loader.h"
#include "lib/fd.h"
#include "lib/program.h"

namespace isogate {
namespace {

constexpr int kPipe = 3;
constexpr size_t kMaxOutput = 4u << 20;
constexpr std::chrono::seconds kPatience{15};  // for a busy machine: RLIMIT_CPU is 5 s

std::string name_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.size() > 3 && name.ends_with(".so")) name.resize(name.size() - 3);
  return name.substr(0, 255);
}

// The child reads the plugin's name, for its messages, from stdin.
Result<ProgramEnd> run_child(int directory, const std::string& name) {
  auto name_pipe = make_pipe();
  if (!name_pipe) return name_pipe.error();
  if (!write_all(name_pipe->write.get(), name)) return os_error("cannot write to a pipe", errno);
  name_pipe->write.reset();
  Program child;
  child.path = "/proc/self/exe";
  child.arguments = {"isogate", "_describe"};
  child.files = {name_pipe->read.get(), Program::kNull, Program::kNull, Program::kOutput};
  static_assert(kPipe == 3);
  child.directory = directory;
  child.time = kPatience;
  child.most_output = kMaxOutput;
  return run_program(std::move(child));
}

Error broken(const std::string& path, const std::string& what) {
  return invalid("plugin `" + name_of(path) + "` (" + path + ") is broken: " + what);
}

Result<Description> judge(const std::string& path, const ProgramEnd& end) {
  const int signal = WIFSIGNALED(end.wait_status) ? WTERMSIG(end.wait_status) : 0;
  if (end.how == ProgramEnd::How::kFlooded)
    return broken(path, "it wrote more than a description where one was expected");
  if (end.how != ProgramEnd::How::kEnded || signal == SIGXCPU)
    return broken(
        path,
        "it did not describe itself within 15 s, or took 5 s of a processor; look at its constructors, its "
        "static objects and its config schema");
  if (signal != 0)
    return broken(path, "it crashed while it was loaded (signal " + std::to_string(signal) + ", " +
                            ::strsignal(signal) + "), or its config schema refers to itself without end");
  if (end.output.empty())
    return broken(
        path, "it ended the process while it was loaded (exit code " + std::to_string(end.exit_code()) + ")");
  auto described = unpack(end.output);
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

// Ends this process with the one that waits for the description. A change of the user would undo it.
Result<void> end_with_reader() {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return os_error("cannot tie a process to its parent", errno);
  pollfd pipe{kPipe, 0, 0};
  if (::poll(&pipe, 1, 0) > 0) ::_exit(1);  // it has ended
  return {};
}

}  // namespace

Result<Description> describe_copy(const PluginImage& image, const PluginCopy& copy) {
  const auto end = run_child(copy.directory(), name_of(image.path));
  if (!end) return end.error();
  auto described = judge(image.path, *end);
  if (!described) return described;
  described->path = image.path;
  described->sha256 = image.sha256;
  add_warnings(image.elf, *described);
  return described;
}

Result<Description> describe_plugin(const std::string& path, const std::string& pin,
                                    const std::string& copy_dir) {
  auto image = inspect_plugin(path, pin);
  if (!image) return image.error();
  auto copy = make_copy(*image, copy_dir);
  if (!copy) return copy.error();
  return describe_copy(*image, *copy);
}

int describe_child_main() {
  auto describe = []() -> Result<Description> {
    Fd here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (auto quarantined = enter_quarantine(); !quarantined) return quarantined.error();
    if (auto tied = end_with_reader(); !tied) return tied.error();
    auto loaded = load_plugin(here.get(), told_name());
    if (!loaded) return loaded.error();
    if (auto usable = check_config_schema(loaded->description); !usable) return usable.error();
    return std::move(loaded->description);
  };
  ::_exit(write_all(kPipe, pack(describe())) ? 0 : 1);  // no exit handler of the plugin runs
}

}  // namespace isogate
