#include "plugins/k8s/egress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "plugins/k8s/profile.h"
#include "runner/fd.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A policy takes a moment to be in force for a new pod.
constexpr milliseconds kSettle{5'000}, kPause{250};
constexpr int kNothingAnswers = 0, kSomethingAnswers = 10;  // of `isogate-runner reach`
constexpr const char* kKubelet = "10250";

bool is_numeric(const std::string& host) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

std::string at(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

struct Answers {
  int exit_code = -1;
  std::string text;
};

Answers ask(sdk::RunnerLink& link, const std::vector<std::string>& targets, const sdk::Call& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) sdk::fail_with_errno("cannot make a pipe", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  std::vector<isogate_str> argv = {sdk::str(kRunner), sdk::str("reach")};
  for (const std::string& each : targets) argv.push_back(sdk::str(each));
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.argv = argv.data();
  request.argc = argv.size();
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = writer.get();
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  link.exec(call, request, result);
  writer.reset();
  char text[4096];
  const ssize_t size = ::read(reader.get(), text, sizeof text);
  const bool exited = result.term_signal == 0 && (result.flags & ISOGATE_RESULT_NOT_STARTED) == 0;
  return {exited ? result.exit_code : -1, std::string(text, size > 0 ? static_cast<size_t>(size) : 0)};
}

// "10.0.0.1:443 (connected), …" of what was not silent.
std::string what_answers(const std::string& text) {
  std::string found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.ends_with(" silent")) continue;
    found += (found.empty() ? "" : ", ") + line.substr(0, space) + " (" + line.substr(space + 1) + ")";
  }
  return printable(found);
}

}  // namespace

std::vector<std::string> targets_of(const Config& config, const ClusterAccess& access,
                                    const std::string& node_ip) {
  if (config.open_network) return {};
  std::vector<std::string> targets = {"169.254.169.254:80"};
  targets.insert(targets.end(), config.must_not_reach.begin(), config.must_not_reach.end());
  if (!config.egress_to.empty()) return targets;  // the rest may be among what is allowed
  targets.push_back(at("hop", kKubelet));
  if (!node_ip.empty()) targets.push_back(at(node_ip, kKubelet));
  const bool loopback = access.host.starts_with("127.") || access.host == "::1";
  if (is_numeric(access.host) && !loopback) targets.push_back(at(access.host, std::to_string(access.port)));
  return targets;
}

void prove_no_way_out(Services& services, sdk::RunnerLink& link, const std::string& node_ip,
                      const sdk::Call& call) {
  const auto targets = targets_of(services.config, services.api.access(), node_ip);
  if (targets.empty()) return;
  const auto until = Clock::now() + kSettle;
  for (;;) {
    const Answers answers = ask(link, targets, call);
    if (answers.exit_code == kNothingAnswers) return;
    if (answers.exit_code != kSomethingAnswers)
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       "whether packets of the sandbox get out could not be tried: exit code " +
                           std::to_string(answers.exit_code));
    const std::string why =
        "packets of sandboxes get out, although a NetworkPolicy denies it: " + what_answers(answers.text) +
        " answered";
    if (services.config.allow_unenforced_network) {
      services.warn_once(why + "; served all the same: allow_unenforced_network");
      return;
    }
    if (Clock::now() >= until)
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       why +
                           ". Use a network that enforces policies (Calico, Cilium, …), or write "
                           "allow_unenforced_network: true");
    call.check();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace isogate::k8s
