#include "tests/support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>
#include "lib/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> environment(const ProgramOptions& options) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : options.env) {
    if (value.empty())
      all.erase(name);
    else
      all[name] = value;
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

pid_t spawn(const std::vector<std::string>& argv, const ProgramOptions& options, int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!options.cwd.empty()) posix_spawn_file_actions_addchdir_np(&actions, options.cwd.c_str());
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  posix_spawnattr_t attributes;  // whoever runs the tests may ignore these, which would be inherited
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&defaults, number);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> arguments = argv, env = environment(options);
  pid_t pid = -1;
  int error = posix_spawnp(&pid, argv.at(0).c_str(), &actions, &attributes, pointers(arguments).data(),
                           pointers(env).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error("cannot start " + argv[0] + ": " + std::strerror(error));
  return pid;
}

void read_into(Fd& fd, std::string& text) {
  char bytes[65536];
  ssize_t n = ::read(fd.get(), bytes, sizeof bytes);
  if (n > 0)
    text.append(bytes, static_cast<size_t>(n));
  else if (n == 0 || errno != EINTR)
    fd.reset();
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const ProgramOptions& options)
    : pending_(options.stdin_bytes) {
  Pipe in = std::move(*make_pipe()), out = std::move(*make_pipe()), err = std::move(*make_pipe());
  if (!options.err_file.empty())
    err.write.reset(::open(options.err_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  pid_ = spawn(argv, options, in.read.get(), out.write.get(), err.write.get());
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  if (options.err_file.empty()) err_ = std::move(err.read);
  ::fcntl(in_.get(), F_SETFL, O_NONBLOCK);
  if (pending_.empty()) in_.reset();
}

Program::~Program() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Program::signal(int number) const {
  if (!reaped_) ::kill(pid_, number);
}

bool Program::pump(double seconds) {
  pollfd waiting[3] = {{in_.get(), POLLOUT, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (!out_ && !err_) return false;
  if (::poll(waiting, 3, static_cast<int>(seconds * 1000)) <= 0) return true;
  if (waiting[0].revents != 0) {
    struct sigaction ignore {
    }, old{};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &old);
    ssize_t n = ::write(in_.get(), pending_.data(), pending_.size());
    ::sigaction(SIGPIPE, &old, nullptr);
    if (n > 0) pending_.erase(0, static_cast<size_t>(n));
    if (pending_.empty() || (n < 0 && errno != EAGAIN)) in_.reset();
  }
  if (waiting[1].revents != 0) read_into(out_, result.out);
  if (waiting[2].revents != 0) read_into(err_, result.err);
  return true;
}

bool Program::wait(double seconds) {
  auto start = Clock::now();
  while (!reaped_ && since(start) < seconds) {
    bool open = pump(0.02);
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (!open) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    reaped_ = true;
    result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    auto ended = Clock::now();
    while (since(ended) < 1 && pump(0.02)) {
    }
  }
  return reaped_;
}

bool Program::wait_for_output(const std::string& text, double seconds) {
  auto start = Clock::now();
  while (result.out.find(text) == std::string::npos)
    if (since(start) > seconds || !pump(0.02)) return false;
  return true;
}

ProgramResult run_program(const std::vector<std::string>& argv, const ProgramOptions& options) {
  Program program(argv, options);
  if (!program.wait(options.timeout_sec)) {
    ADD_FAILURE() << argv[0] << " still runs after " << options.timeout_sec << " s";
    program.signal(SIGKILL);
    program.wait(5);
  }
  return program.result;
}

std::string isogate_binary() { return ISOGATE_BUILD_DIR "/bin/isogate"; }

ProgramResult run_isogate(std::vector<std::string> arguments, const ProgramOptions& options) {
  arguments.insert(arguments.begin(), isogate_binary());
  return run_program(arguments, options);
}

ProgramResult run_with_tmp_noexec(const std::vector<std::string>& argv) {
  std::vector<std::string> all = {"unshare",
                                  "--mount",
                                  "sh",
                                  "-c",
                                  "mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp || exit 77; "
                                  "unset TMPDIR; exec \"$@\"",
                                  "sh"};
  all.insert(all.end(), argv.begin(), argv.end());
  return run_program(all);
}

TemporaryDirectory::TemporaryDirectory(const std::string& above) : path_(above + "/isogate-test-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a directory in " + above);
  ::chmod(path_.c_str(), 0711);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::file(const std::string& name, const std::string& content, mode_t mode) const {
  std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  ::chmod(path.c_str(), mode);
  return path;
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace isogate::test
