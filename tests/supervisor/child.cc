// Speaks the control protocol like a front or a host, and does on request what the real ones never do. Each
// event that it sees is one JSON line on stderr.
//
// The front's behaviour is the start of the configuration's `instance`, the host's is `act` in its backend's
// configuration.
#include <dirent.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gateway/ipc/channel.h"

namespace {

using Json = nlohmann::json;
using isogate::Fd;
namespace ipc = isogate::ipc;

constexpr int kControl = 3;
std::string role;
Fd logger;  // of a host; none: stderr

void say(Json line) {
  line["child"] = role;
  line["child_pid"] = ::getpid();
  const std::string text = line.dump() + "\n";
  (void)!::write(logger ? logger.get() : 2, text.data(), text.size());
}

void tell_supervisor(const Json& message) {
  (void)!ipc::send_record(kControl, message.dump(), {}, ipc::Wait::kBlock).ok();
}

Json descriptors() {
  Json all = Json::array();
  DIR* dir = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(dir))
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != ::dirfd(dir))
      all.push_back(std::atoi(entry->d_name));
  ::closedir(dir);
  return all;
}

Json surroundings() {
  Json environment = Json::array();
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  sigset_t blocked;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  struct sigaction pipe {};
  ::sigaction(SIGPIPE, nullptr, &pipe);
  return {{"event", "started"},
          {"environment", environment},
          {"descriptors", descriptors()},
          {"session_leader", ::getsid(0) == ::getpid()},
          {"term_blocked", ::sigismember(&blocked, SIGTERM) == 1},
          {"pipe_ignored", pipe.sa_handler == SIG_IGN}};
}

// nullopt at the end of the control socket.
std::optional<ipc::Received> next_record() {
  auto received = ipc::receive_record(kControl, ipc::Wait::kBlock);
  if (!received) return std::nullopt;
  return std::move(*received);
}

int front() {
  say(surroundings());
  std::map<std::string, Fd> backends;
  std::string act;
  std::vector<Fd> listeners;
  while (auto record = next_record()) {
    const Json message = Json::parse(record->bytes);
    const std::string type = message["type"];
    say({{"event", "front got " + type}, {"message", message}, {"fds", record->fds.size()}});
    if (type == "start") {
      act = message["config"]["instance"];
      listeners = std::move(record->fds);
      if (act == "crash") ::abort();
      if (act == "fatal") tell_supervisor({{"type", "fatal"}, {"message", "the database is locked"}});
      if (act == "serves") tell_supervisor({{"type", "serving"}});
      if (act == "never-ready" || act == "serves" || act == "fatal") continue;
      tell_supervisor({{"type", "ready"}});
      if (act == "ready-twice") tell_supervisor({{"type", "ready"}});
      while (act == "flood") tell_supervisor({{"type", "stuck"}, {"message", "one"}, {"generation", 99}});
    } else if (type == "backend") {
      if (message["state"] == "down") backends.erase(message["name"]);
      if (message["state"] == "up") backends[message["name"]] = std::move(record->fds.at(0));
      if (act == "gives-up" && message["generation"] == 1)
        tell_supervisor({{"type", "stuck"}, {"message", message["name"]}, {"generation", 1}});
      if (message["state"] == "up" && (act == "gives-up-probed" || act == "gives-up-unprobed"))
        tell_supervisor({{"type", "stuck"},
                         {"message", message["name"]},
                         {"generation", message["generation"]},
                         {"reason", "it hangs"},
                         {"probed", act == "gives-up-probed"}});
    } else if (type == "reload") {
      if (act == "mute") continue;
      if (act == "late") ::usleep(1'000'000);
      Json answer = {{"type", "reloaded"}, {"number", message["number"]}};
      if (act == "refuses") answer.update({{"type", "reload_refused"}, {"message", "no such tenant"}});
      tell_supervisor(answer);
      if (act == "refuses") continue;
      const Json all = message["config"]["backends"];
      std::erase_if(backends, [&](const auto& each) {
        return std::none_of(all.begin(), all.end(),
                            [&](const Json& one) { return one["name"] == each.first; });
      });
    } else if (type == "drain" && act != "no-drain") {
      tell_supervisor({{"type", "drained"}});
      if (act == "ready-at-the-end") tell_supervisor({{"type", "ready"}});
    }
  }
  say({{"event", "front sees the end"}});
  if (act == "no-end") ::pause();
  return 0;
}

int host_acts(const std::string& act) {
  if (act == "crash") ::abort();
  if (act == "exit3") return 3;
  if (act == "garbage") tell_supervisor({{"type", "hello"}});
  if (act == "failed") {
    tell_supervisor({{"type", "failed"}, {"message", "plugin `x` is absent"}});
    return 3;
  }
  if (act == "mistaken") {
    ::usleep(200'000);
    tell_supervisor({{"type", "failed"}, {"message", "`procs` is unknown"}, {"setting", "config"}});
    return 3;
  }
  if (act == "prints") {
    constexpr std::string_view kForged = "{\"event\":\"forged\"}\n";
    (void)!::write(2, kForged.data(), kForged.size());
  }
  if (act == "orphan" && ::fork() == 0) {
    if (::fork() == 0) ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(0);
  }
  if (act != "never-ready" && act != "garbage") tell_supervisor({{"type", "ready"}});
  while (act == "ready-for-ever") tell_supervisor({{"type", "ready"}});
  return -1;
}

int host(const std::string& name) {
  const Json own = surroundings();
  auto start = next_record();
  if (!start) return 0;
  const Json message = Json::parse(start->bytes);
  logger = std::move(start->fds.at(1));
  say(own);
  say({{"event", "host got start"}, {"message", message}, {"name", name}});
  const Fd to_front = std::move(start->fds.at(0));
  const std::string act = message["config"]["backends"][0]["config"].value("act", "");
  if (const int code = host_acts(act); code >= 0) return code;
  pollfd fds[2] = {{kControl, POLLIN, 0}, {to_front.get(), POLLIN, 0}};
  while (::poll(fds, 2, -1) > 0) {
    if (fds[0].revents != 0) {
      auto record = next_record();
      const Json order = record ? Json::parse(record->bytes) : Json{{"type", "the end of control"}};
      say({{"event", "host got " + order["type"].get<std::string>()}, {"message", order}, {"name", name}});
      if (order["type"] == "mode") continue;
      if (act == "slow-end") ::usleep(1'000'000);
      if (act != "ignore-stop") return 0;
      fds[0].fd = -1;
    }
    if (fds[1].revents != 0) {
      say({{"event", "host sees the end of its front"}, {"name", name}});
      if (act == "slow-end") ::usleep(1'000'000);
      if (act != "linger") return 0;
      fds[1].fd = -1;
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  (void)::signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn it into an exit code
  role = count > 1 ? arguments[1] : "";
  if (role == "_front") return front();
  return role == "_host" && count > 2 ? host(arguments[2]) : 99;
}
