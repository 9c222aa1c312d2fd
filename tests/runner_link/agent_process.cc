#include "agent_process.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "calls.h"
#include "tests_dirs.h"

namespace isogate::testing {

AgentProcess::AgentProcess(bool descriptors) {
  std::string pattern = std::filesystem::temp_directory_path() / "runner-link-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  workspace_ = pattern;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  std::string binary = ISOGATE_BUILD_DIR "/bin/isogate-runner", mode = "stdio", option = "--workspace";
  char* const argv[] = {binary.data(), mode.data(), option.data(), workspace_.data(), nullptr};
  const int failed = ::posix_spawn(&child_, binary.c_str(), &actions, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  auto stream = sdk::socket_stream(ends[0], descriptors);
  if (failed != 0) throw std::runtime_error("isogate-runner does not start");
  const Ask ask;
  link_ = sdk::RunnerLink::connect(std::move(stream), std::chrono::seconds(10), ask.call);
}

AgentProcess::~AgentProcess() {
  link_.reset();
  kill();
  std::filesystem::remove_all(workspace_);
}

void AgentProcess::kill() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

}  // namespace isogate::testing
