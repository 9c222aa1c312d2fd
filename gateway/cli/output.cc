#include "gateway/cli/output.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "gateway/cli/exit_code.h"

namespace isogate::cli {
namespace {

char unfinished_path[PATH_MAX];  // written with the signals blocked

void interrupted(int) {
  if (unfinished_path[0] != '\0') ::unlink(unfinished_path);
  static constexpr char kMessage[] = "isogate: interrupted\n";
  [[maybe_unused]] ssize_t n = ::write(2, kMessage, sizeof kMessage - 1);
  ::_exit(kInterrupted);
}

constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The value of each character, -1 for those that are none.
constexpr auto kValues = [] {
  std::array<signed char, 256> values{};
  values.fill(-1);
  for (signed char i = 0; i < 64; ++i) values[static_cast<unsigned char>(kAlphabet[i])] = i;
  return values;
}();

int value_of(char c) { return kValues[static_cast<unsigned char>(c)]; }

}  // namespace

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE && fd == 1) ::_exit(kPipeClosed);
    if (n < 0) return os_error(fd == 1 ? "cannot write to stdout" : "cannot write", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

void print(std::string_view text) {
  auto written = write_all(1, text);
  if (written.ok()) return;
  complain(written.error().message);
  ::_exit(kFailed);
}

void complain(std::string_view message) {
  std::string line = "isogate: " + std::string(message) + "\n";
  [[maybe_unused]] auto ignored = write_all(2, ::isatty(2) != 0 ? for_terminal(line) : line);
}

void advise(std::string_view what_to_do) {
  [[maybe_unused]] auto ignored = write_all(2, "  " + std::string(what_to_do) + "\n");
}

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

Result<std::string> from_base64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  if (text.size() % 4 != 0) return Error{ISOGATE_LOST, 0, "the gateway sent base64 of a wrong length"};
  for (size_t i = 0; i < text.size(); i += 4) {
    bool last = i + 4 == text.size();
    size_t padding = !last ? 0 : text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    unsigned group = 0;
    for (size_t k = 0; k < 4; ++k) {
      int value = k < 4 - padding ? value_of(text[i + k]) : 0;
      if (value < 0) return Error{ISOGATE_LOST, 0, "the gateway sent base64 that is none"};
      group = group << 6 | static_cast<unsigned>(value);
    }
    for (size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

std::string for_terminal(std::string_view text) {
  std::string safe(text);
  for (char& c : safe)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = '?';
  return safe;
}

void end_on_signals() {
  struct sigaction ignore {
  }, end{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  end.sa_handler = interrupted;
  for (int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &end, nullptr);
}

void remove_when_interrupted(const std::string& unfinished) {
  sigset_t all, old;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &old);
  unfinished_path[unfinished.copy(unfinished_path, sizeof unfinished_path - 1)] = '\0';
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace isogate::cli
