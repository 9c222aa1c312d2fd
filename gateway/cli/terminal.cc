#include "gateway/cli/terminal.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "gateway/cli/output.h"

namespace isogate::cli {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

termios cooked;  // as it was before enter()

void restore_and_crash(int number) {
  ::tcsetattr(0, TCSANOW, &cooked);
  ::raise(number);
}

void on_crashes(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : kCrashes) ::sigaction(number, &action, nullptr);
}

}  // namespace

HeldSignals::HeldSignals(std::initializer_list<int> numbers) {
  ::sigemptyset(&taken_);
  for (const int number : numbers)
    if (!is_ignored(number)) ::sigaddset(&taken_, number);
  ::sigprocmask(SIG_BLOCK, &taken_, &before_);
  fd_.reset(::signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK));
}

void HeldSignals::add(std::initializer_list<int> numbers) {
  for (const int number : numbers) ::sigaddset(&taken_, number);
  ::sigprocmask(SIG_BLOCK, &taken_, nullptr);
  ::signalfd(fd_.get(), &taken_, 0);
}

int HeldSignals::next() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

TerminalSize terminal_size() {
  winsize size{};
  if (::ioctl(0, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

Result<void> RawMode::enter() {
  if (!entered_ && ::tcgetattr(0, &cooked) != 0) return os_error("cannot use the terminal", errno);
  if (!entered_) on_crashes(restore_and_crash);
  entered_ = true;
  termios raw = cooked;
  ::cfmakeraw(&raw);
  if (::tcsetattr(0, TCSADRAIN, &raw) != 0) return os_error("cannot use the terminal", errno);
  return {};
}

void RawMode::leave() {
  if (!entered_) return;
  ::tcsetattr(0, TCSANOW, &cooked);
  entered_ = false;
  on_crashes(SIG_DFL);
}

std::string DetachKeys::pass(std::string_view typed) {
  std::string keys;
  for (const char key : typed) {
    if (detached_) break;
    if (held_) {
      held_ = false;
      detached_ = key == '.';
      if (detached_) break;
      keys += '~';
      line_begins_ = false;
      if (key == '~') continue;
    } else if (line_begins_ && key == '~') {
      held_ = true;
      continue;
    }
    keys += key;
    line_begins_ = key == '\r' || key == '\n';
  }
  return keys;
}

}  // namespace isogate::cli
