#include "plugins/k8s/client/kubeconfig/credential_plugin.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/fd.h"
#include "lib/json.h"
#include "lib/program.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::milliseconds kLongest{30'000};
constexpr size_t kPrintedMost = 1 << 20;

[[noreturn]] void fail(const CredentialPlugin& plugin, const std::string& why) {
  throw ApiError(ISOGATE_PERMISSION_DENIED,
                 "cannot log in: credential plugin `" + one_line(plugin.command, 200) + "` " + why +
                     (plugin.install_hint.empty() ? "" : "; see its install hint"));
}

std::vector<std::string> environment_of(const CredentialPlugin& plugin) {
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : plugin.env) variables[name] = value;
  variables["KUBERNETES_EXEC_INFO"] = plugin.exec_info;
  std::vector<std::string> all;
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

// A process group of its own, killed and reaped in the end.
class Child {
 public:
  Child(const CredentialPlugin& plugin, int out) {
    std::vector<std::string> arguments{plugin.command};
    arguments.insert(arguments.end(), plugin.args.begin(), plugin.args.end());
    const int files[] = {-1, out, -1};
    const auto pid = spawn_program(plugin.command, std::move(arguments), environment_of(plugin), files, true);
    if (!pid) fail(plugin, "cannot be run: " + std::generic_category().message(pid.error().os_errno));
    pid_ = *pid;
    ended_ = watch_process(pid_);
    if (ended_) return;
    const int error = errno;
    end();
    fail(plugin, "cannot be watched: " + std::generic_category().message(error));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }
  [[nodiscard]] int ended() const { return ended_.get(); }  // readable then
  // Its end, once its output has ended: -1 while it still runs.
  [[nodiscard]] int poll_status() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return -1;
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  }

 private:
  void end() const {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid_ = -1;
  Fd ended_;
};

void check(const CredentialPlugin& plugin, Budget::Outcome outcome, const Budget& budget,
           Budget::Clock::time_point end) {
  if (outcome == Budget::Outcome::kCancelled) throw ApiError(ISOGATE_CANCELLED, "cancelled");
  if (budget.over() || Budget::Clock::now() >= end) fail(plugin, "was not done in time");
}

Budget::Outcome wait_until(const Budget& budget, int readable, Budget::Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Budget::Clock::now());
  return budget.wait(readable, POLLIN, std::max(left, std::chrono::milliseconds(0)));
}

std::string read_all(const CredentialPlugin& plugin, int from, const Budget& budget,
                     Budget::Clock::time_point end) {
  std::string printed;
  std::array<char, 16384> buffer{};
  for (;;) {
    const auto outcome = wait_until(budget, from, end);
    if (outcome != Budget::Outcome::kReady) check(plugin, outcome, budget, end);
    const ssize_t n = ::read(from, buffer.data(), buffer.size());
    if (n == 0) return printed;
    if (n < 0 && errno != EINTR && errno != EAGAIN) fail(plugin, "cannot be read");
    if (n > 0) printed.append(buffer.data(), static_cast<size_t>(n));
    if (printed.size() > kPrintedMost) fail(plugin, "printed more than 1 MiB");
  }
}

// RFC 3339; fractions of a second do not matter.
std::optional<std::chrono::sys_seconds> parse_time(const std::string& text) {
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.')
    for (++rest; *rest >= '0' && *rest <= '9';) ++rest;
  std::tm offset{};
  long shift = 0;
  if (*rest == '+' || *rest == '-') {
    const char* end = ::strptime(rest + 1, "%H:%M", &offset);
    if (end == nullptr || *end != '\0') return std::nullopt;
    shift = (*rest == '+' ? 60L : -60L) * (offset.tm_hour * 60 + offset.tm_min);
  } else if ((*rest != 'Z' && *rest != 'z') || rest[1] != '\0') {
    return std::nullopt;
  }
  return std::chrono::sys_seconds(std::chrono::seconds(::timegm(&parts) - shift));
}

}  // namespace

PluginAnswer parse_exec_credential(const CredentialPlugin& plugin, const std::string& printed) {
  const auto json = parse_shallow(printed);
  if (!json.is_object() || text_at(json, "kind") != "ExecCredential")
    fail(plugin, "printed no ExecCredential");
  if (text_at(json, "apiVersion") != plugin.api_version)
    fail(plugin, "printed another apiVersion than " + plugin.api_version);
  const auto status = json.find("status");
  if (status == json.end() || !status->is_object()) fail(plugin, "printed no status");
  PluginAnswer answer;
  answer.token = text_at(*status, "token");
  answer.identity.certificate = text_at(*status, "clientCertificateData");
  answer.identity.key = text_at(*status, "clientKeyData");
  if (answer.identity.certificate.empty() != answer.identity.key.empty())
    fail(plugin, "gave a certificate without its key, or a key without its certificate");
  if (answer.token.empty() && answer.identity.certificate.empty())
    fail(plugin, "gave neither a token nor a certificate");
  answer.expires = std::chrono::sys_seconds::max();
  if (const std::string until = text_at(*status, "expirationTimestamp"); !until.empty()) {
    const auto parsed = parse_time(until);
    if (!parsed) fail(plugin, "gave an expirationTimestamp that is no time");
    answer.expires = *parsed;
  }
  return answer;
}

PluginAnswer run_credential_plugin(const CredentialPlugin& plugin, const Budget& budget) {
  const auto end = Budget::Clock::now() + kLongest;
  auto pipe = make_pipe();
  if (!pipe) throw ApiError(pipe.error().status, pipe.error().message);
  const Child child(plugin, pipe->write.get());
  pipe->write.reset();
  const std::string printed = read_all(plugin, pipe->read.get(), budget, end);
  int status = -1;
  while ((status = child.poll_status()) < 0)
    check(plugin, wait_until(budget, child.ended(), end), budget, end);
  if (status != 0) fail(plugin, "failed with exit code " + std::to_string(status));
  PluginAnswer answer = parse_exec_credential(plugin, printed);
  const Identity also = read_identity(plugin.also);
  if (answer.identity.certificate.empty()) {
    answer.identity.certificate = also.certificate;
    answer.identity.key = also.key;
  }
  return answer;
}

}  // namespace isogate::k8s
