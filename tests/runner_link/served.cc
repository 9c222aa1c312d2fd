#include "served.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

#include "calls.h"
#include "tests_dirs.h"

namespace isogate::testing {
namespace {

const std::string kBinary = ISOGATE_BUILD_DIR "/bin/isogate-runner";

}  // namespace

// Two pipes, lost after a number of bytes.
class CutStream final : public sdk::RunnerStream {
 public:
  CutStream(Served& served, int in, int out, size_t bytes, pid_t attached)
      : served_(served), in_(in), out_(out), left_(bytes), attached_(attached) {}
  ~CutStream() override {
    shutdown();
    {
      const std::lock_guard lock(served_.mutex_);
      served_.attached_.erase(attached_);
    }
    ::kill(attached_, SIGKILL);
    ::waitpid(attached_, nullptr, 0);
  }
  [[nodiscard]] int fd() const override { return in_; }
  [[nodiscard]] int room_fd() const override { return out_; }
  ssize_t read_some(char* to, size_t size) override {
    if (left_ == 0) shutdown();
    const ssize_t got = ::read(in_, to, std::min(size, left_));
    if (got > 0) spend(got);
    return got;
  }
  // The last bytes are accepted, and never delivered.
  ssize_t write_some(const char* from, size_t size) override {
    if (left_ == 0) shutdown();
    const ssize_t sent = ::write(out_, from, std::min(size, left_));
    if (sent <= 0) return sent;
    spend(sent);
    return left_ > 0 ? sent : static_cast<ssize_t>(size);
  }
  void shutdown() override {
    for (int* each : {&in_, &out_})
      if (*each >= 0) ::close(std::exchange(*each, -1));
  }

 private:
  // The other side sees the end, and then this one, too.
  void spend(ssize_t size) {
    left_ -= static_cast<size_t>(size);
    if (left_ == 0) ::close(std::exchange(out_, -1));
  }

  Served& served_;
  int in_, out_;
  size_t left_;
  const pid_t attached_;
};

pid_t start(const std::vector<std::string>& arguments, int in, int out) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (in >= 0) ::posix_spawn_file_actions_adddup2(&actions, in, 0);
  if (out >= 0) ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  std::vector<char*> argv;
  for (const auto& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(arguments[0] + " does not start");
  return child;
}

Served::Served()
    : listener_("isogate-test-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device()())) {
  std::string pattern = std::filesystem::temp_directory_path() / "runner-serve-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  workspace_ = pattern;
  start();
}

Served::~Served() {
  kill();
  std::filesystem::remove_all(workspace_);
}

void Served::start() {
  ::signal(SIGPIPE, SIG_IGN);
  child_ = testing::start({kBinary, "serve", "--workspace", workspace_, "--listener", listener_}, -1, -1);
}

void Served::kill() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

void Served::cut() {
  const std::lock_guard lock(mutex_);
  for (const pid_t each : attached_) ::kill(each, SIGKILL);
}

std::unique_ptr<sdk::RunnerStream> Served::dial(size_t bytes) {
  if (!is_there) throw sdk::Error(ISOGATE_NOT_FOUND, "there is no such runner");
  if (!reachable) throw sdk::Error(ISOGATE_UNAVAILABLE, "not now");
  ++dialled;
  Pipe in(O_CLOEXEC), out(O_CLOEXEC);
  const pid_t attached =
      testing::start({kBinary, "attach", "--listener", listener_, "--server", std::to_string(child_)},
                     in.reader, out.writer);
  for (const int each : {in.writer, out.reader}) ::fcntl(each, F_SETFL, O_NONBLOCK);
  {
    const std::lock_guard lock(mutex_);
    attached_.insert(attached);
  }
  return std::make_unique<CutStream>(*this, std::exchange(out.reader, -1), std::exchange(in.writer, -1),
                                     bytes, attached);
}

std::shared_ptr<sdk::RunnerLink> Served::link(const sdk::ResumeOptions& options, uint64_t seed) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  const auto dial_one = [this, random](const sdk::Call&) {
    return dial(most == SIZE_MAX ? SIZE_MAX : std::uniform_int_distribution(least, most)(*random));
  };
  const Ask ask;
  for (int tries = 0;; ++tries) {
    try {
      return sdk::link::connect(sdk::resumable_stream(dial_one, options, ask.call), std::chrono::seconds(10),
                                ask.call, patience);
    } catch (const sdk::Error&) {
      if (most == SIZE_MAX || tries == 20) throw;  // cut before the session began
    }
  }
}

}  // namespace isogate::testing
