#include "runner/agent/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace isogate::agent {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set{};
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

Fd descriptor_for(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool from_outside(const signalfd_siginfo& info) { return info.ssi_code == SI_USER && info.ssi_pid == 0; }

}  // namespace

Result<void> Signals::open() {
  const sigset_t blocked = set_of({SIGTERM, SIGINT, SIGHUP, SIGCHLD});
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  end_ = descriptor_for({SIGTERM, SIGINT});
  child_ = descriptor_for({SIGCHLD});
  if (!end_ || !child_) return os_error("cannot take signals from a descriptor", errno);
  return {};
}

bool Signals::should_end() {
  signalfd_siginfo info{};
  while (::read(end_.get(), &info, sizeof info) == sizeof info) {
    if (::getpid() != 1 || info.ssi_code == SI_KERNEL || from_outside(info)) ending_ = true;
  }
  return ending_;
}

void Signals::forget_children() const {
  signalfd_siginfo info{};
  while (::read(child_.get(), &info, sizeof info) == sizeof info) {
  }
}

}  // namespace isogate::agent
