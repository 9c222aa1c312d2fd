#include "tests/runner/box.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace isogate::test {
namespace {

std::mutex notices_mutex;
std::vector<std::string> collected;

std::vector<int> numbers_in(const char* directory) {
  std::vector<int> numbers;
  DIR* const listing = ::opendir(directory);
  if (listing == nullptr) return numbers;
  while (const dirent* entry = ::readdir(listing)) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') numbers.push_back(std::atoi(entry->d_name));
  }
  ::closedir(listing);
  return numbers;
}

std::string contents(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 65536> buffer{};
  for (ssize_t size = 0; (size = ::read(file.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

Fd memory_file() { return Fd(::memfd_create("output", MFD_CLOEXEC)); }

std::string contents(const Fd& file) {
  std::string text(static_cast<size_t>(std::max<off_t>(::lseek(file.get(), 0, SEEK_END), 0)), '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::leaf ? "leaf" : "reaper";
}

Runner& shared_runner(Kind kind) {
  static const auto make = [](bool use_leaf) {
    RunnerOptions options;
    options.use_leaf = use_leaf;
    options.group = "isogate-test";
    options.notice = [](const std::string& line) {
      const std::lock_guard lock(notices_mutex);
      collected.push_back(line);
    };
    return Runner::make(std::move(options));
  };
  static const std::unique_ptr<Runner> leaf = make(true), reaper = make(false);
  return kind == Kind::leaf ? *leaf : *reaper;
}

std::vector<std::string> notices() {
  const std::lock_guard lock(notices_mutex);
  return collected;
}

bool leaves_work() { return shared_runner(Kind::leaf).abilities().tree_kill == "cgroup2 leaf"; }

std::string new_mark() {
  static std::atomic<int> next{0};
  return "mark-" + std::to_string(::getpid()) + "-" + std::to_string(next++) + "-end";
}

std::vector<int> marked(const std::string& mark) {
  std::vector<int> found;
  for (const int pid : numbers_in("/proc")) {
    if (contents("/proc/" + std::to_string(pid) + "/environ").find(mark) != std::string::npos) {
      found.push_back(pid);
    }
  }
  return found;
}

bool gone_within(const std::string& mark, double seconds) {
  return eventually(seconds, [&] { return marked(mark).empty(); });
}

bool there_within(const std::string& mark, size_t count, double seconds) {
  return eventually(seconds, [&] { return marked(mark).size() >= count; });
}

Command shell(const std::string& script, const std::string& mark) {
  Command command(Site::host());
  command.argv = {"sh", "-c", script};
  command.env = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  if (!mark.empty()) command.env.emplace_back("ISOGATE_TEST_MARK", mark);
  return command;
}

Output run_captured(Runner& runner, Command command) {
  const Fd out = memory_file(), err = memory_file();
  command.stdout_fd = out.get();
  command.stderr_fd = err.get();
  Output output;
  output.ending = runner.run(command);
  output.out = contents(out);
  output.err = contents(err);
  return output;
}

bool is_root() { return ::geteuid() == 0; }

size_t open_descriptors() { return numbers_in("/proc/self/fd").size(); }

void RunnerTest::SetUp() {
  if (GetParam() == Kind::leaf && !leaves_work()) {
    GTEST_SKIP() << "no cgroup2 leaf here: " << shared_runner(Kind::leaf).abilities().missing;
  }
}

Output RunnerTest::run(const std::string& script, const std::string& mark) const {
  return run_captured(runner(), shell(script, mark));
}

}  // namespace isogate::test
