#include "tests/cli/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include <chrono>
#include <stdexcept>

#include "lib/program.h"

namespace isogate::test {

Terminal::Terminal(const std::vector<std::string>& argv) {
  std::vector<std::string> arguments = argv;
  std::vector<char*> program = pointers(arguments);
  winsize size{50, 200, 0, 0};
  int master = -1;
  pid_ = ::forkpty(&master, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("cannot make a pseudo-terminal");
  if (pid_ == 0) {
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) ::signal(number, SIG_DFL);
    ::setenv("TERM", "dumb", 1);
    ::execvp(program[0], program.data());
    ::_exit(127);
  }
  master_.reset(master);
}

Terminal::~Terminal() {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  master_.reset();
  ::waitpid(pid_, nullptr, 0);
}

void Terminal::type(const std::string& keys) {
  if (::write(master_.get(), keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("cannot type into the terminal");
}

bool Terminal::shows(const std::string& text, double seconds) {
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (size_t at = screen_.find(text); at != std::string::npos) {
      screen_.erase(0, at + text.size());
      return true;
    }
    pollfd waiting{master_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 50) <= 0) continue;
    char bytes[4096];
    ssize_t n = ::read(master_.get(), bytes, sizeof bytes);
    if (n <= 0) return screen_.find(text) != std::string::npos;
    screen_.append(bytes, static_cast<size_t>(n));
    everything_.append(bytes, static_cast<size_t>(n));
  }
  return false;
}

bool Terminal::echo_is_off() const {
  termios state{};
  return ::tcgetattr(master_.get(), &state) == 0 && (state.c_lflag & ECHO) == 0;
}

void Terminal::resize(unsigned short cols, unsigned short rows) {
  winsize size{rows, cols, 0, 0};
  ::ioctl(master_.get(), TIOCSWINSZ, &size);
}

}  // namespace isogate::test
