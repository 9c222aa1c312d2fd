// isogate key new, hash
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "gateway/cli/cli.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/terminal.h"
#include "lib/fd.h"
#include "lib/hash.h"

namespace isogate::cli {
namespace {

constexpr size_t kMaxKeyBytes = 4096, kGoodKeyBytes = 32;

// One line, without its end.
Result<std::string> read_line(int fd) {
  std::string line;
  char byte;
  for (;;) {
    ssize_t n = ::read(fd, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("cannot read the key", errno);
    if (n == 0 || byte == '\n') break;
    line += byte;
    if (line.size() > kMaxKeyBytes) return invalid("the key is over 4096 bytes");
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

Result<std::string> ask_without_echo() {
  Fd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  termios before{};
  if (!terminal || ::tcgetattr(terminal.get(), &before) != 0)
    return os_error("cannot ask on the terminal", errno);
  termios silent = before;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  silent.c_lflag |= ICANON;  // a line can be read as soon as anything can
  // Whatever comes, the terminal shows again what is typed.
  const HeldSignals signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
  [[maybe_unused]] auto asked = write_all(terminal.get(), "Key: ");
  ::tcsetattr(terminal.get(), TCSAFLUSH, &silent);
  pollfd watched[2] = {{terminal.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (::poll(watched, 2, -1) < 0 && errno == EINTR) {
  }
  auto line =
      watched[1].revents == 0 ? read_line(terminal.get()) : Error{ISOGATE_CANCELLED, EINTR, "interrupted"};
  ::tcsetattr(terminal.get(), TCSAFLUSH, &before);
  asked = write_all(terminal.get(), "\n");
  return line;
}

}  // namespace

int run_key_new(const KeyOptions& options) {
  // E2B's SDKs know their keys by their form; the digits are 256 random bits.
  std::string key =
      options.e2b ? "e2b_" + sha256_hex(random_bytes(32)) : "isg_" + base32_lower(random_bytes(32));
  std::string hash = sha256_hex(key);
  if (options.json) {
    print("{\"key\":\"" + key + "\",\"sha256\":\"" + hash + "\"}\n");
    return kDone;
  }
  print("key     " + key + "\nsha256  " + hash + "\n");
  complain("the key is shown this once; the configuration takes only its hash:");
  advise("keys:\n    - {name: NAME, tenant: TENANT, sha256: " + hash + "}");
  return kDone;
}

int run_key_hash(const KeyOptions& options) {
  const bool asks = ::isatty(0) != 0;
  auto key = asks ? ask_without_echo() : read_line(0);
  pollfd more = {0, POLLIN, 0};  // nothing is waited for
  for (char c = 0; !asks && key.ok() && ::poll(&more, 1, 0) == 1 && ::read(0, &c, 1) == 1;) {
    if (c == '\n' || c == '\r') continue;
    complain("there is more than one line on stdin: hash one key at a time");
    return kFailed;
  }
  if (!key.ok() || key->empty()) {
    complain(key.ok() ? "there is no key on stdin" : key.error().message);
    return kFailed;
  }
  for (unsigned char c : *key)
    if (c <= 0x20 || c >= 0x7f) {
      complain(
          "the key holds a space, a control character or a byte that is not ASCII: no client could send it");
      return kFailed;
    }
  if (key->size() < kGoodKeyBytes)
    complain("warning: a key of " + std::to_string(key->size()) +
             " characters can be guessed by who has its hash; `isogate key new` makes a good one");
  std::string hash = sha256_hex(*key);
  print(options.json ? "{\"sha256\":\"" + hash + "\"}\n" : hash + "\n");
  return kDone;
}

}  // namespace isogate::cli
