#include "gateway/cli/output.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "lib/clock.h"
#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

char unfinished_path[PATH_MAX];  // written with the signals blocked

void interrupted(int) {
  if (unfinished_path[0] != '\0') ::unlink(unfinished_path);
  static constexpr char kMessage[] = "isogate: interrupted\n";
  [[maybe_unused]] ssize_t n = ::write(2, kMessage, sizeof kMessage - 1);
  ::_exit(kInterrupted);
}

}  // namespace

Result<void> write_all(int fd, std::string_view bytes) {
  if (isogate::write_all(fd, bytes)) return {};
  if (errno == EPIPE && fd == 1) ::_exit(kPipeClosed);
  return os_error(fd == 1 ? "cannot write to stdout" : "cannot write", errno);
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

Result<std::string> from_base64(std::string_view text) {
  auto bytes = base64_decode(text);
  if (!bytes) return Error{ISOGATE_LOST, 0, "the gateway sent invalid base64"};
  return std::move(*bytes);
}

std::string decoded_name(std::string text, std::string_view encoding) {
  auto bytes = encoding == "base64" ? base64_decode(text) : std::nullopt;
  return bytes ? *bytes : text;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i)
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += row.back() + "\n";
  }
  print(for_terminal(text));
}

std::string for_terminal(std::string_view text) {
  std::string safe(text);
  for (char& c : safe)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = '?';
  for (size_t i = 0; i + 1 < safe.size(); ++i)  // C1, in UTF-8
    if (safe[i] == '\xc2' && static_cast<unsigned char>(safe[i + 1]) < 0xa0) safe[i] = safe[i + 1] = '?';
  return safe;
}

std::string date_text(int64_t ms) { return utc_text(ms / 1000) + "Z"; }

std::string listed(const nlohmann::ordered_json& texts) {
  const auto list = join(texts, ", ", [](const auto& text) { return text.template get<std::string>(); });
  return list.empty() ? "none" : list;
}

void end_on_signals() {
  struct sigaction ignore {
  }, end{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  end.sa_handler = interrupted;
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(number)) ::sigaction(number, &end, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void remove_when_interrupted(const std::string& unfinished) {
  sigset_t all, old;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &old);
  unfinished_path[unfinished.copy(unfinished_path, sizeof unfinished_path - 1)] = '\0';
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace isogate::cli
