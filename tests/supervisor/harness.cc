#include "tests/supervisor/harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "gateway/config/load.h"
#include "lib/log.h"
#include "tests/eventually.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

void write_whole(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  ::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace

Json backend_names(const Json& message) {
  Json names = Json::array();
  for (const Json& each : message["config"]["backends"]) names.push_back(each["name"]);
  return names;
}

BackendConfig backend(const std::string& name, const std::string& act) {
  BackendConfig config;
  config.name = name;
  config.plugin = "x";
  config.config_json = Json{{"act", act}}.dump();
  return config;
}

Supervised::Supervised(Options options) {
  log_path_ = directory_.file("log", "");
  config_path_ = directory_.path() + "/config.json";
  config_.listen = {"127.0.0.1:0"};
  config_.state_dir = options.state_dir.empty() ? directory_.path() + "/state" : options.state_dir;
  config_.plugin_dir = directory_.path();
  directory_.file("x.so", "of no interest to the hosts that stand in here");
  config_.instance = options.instance;
  config_.drain_timeout_sec = 2;
  config_.backends = options.backends;
  if (options.change) options.change(config_);
  write_whole(config_path_, config_to_json(config_));
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::_exit(run(options));
}

int Supervised::run(const Options& options) {
  const int log = ::open(log_path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ::dup2(log, 1);
  ::dup2(log, 2);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  (void)!log::start("supervisor", "info", config_.log.file).ok();
  ServeOptions serve;
  serve.config_path = config_path_;
  serve.warnings = {"a warning"};
  serve.relaxations = {"a relaxation"};
  serve.child_executable = ISOGATE_BUILD_DIR "/bin/supervisor_child";
  serve.timings.drain_extra = std::chrono::milliseconds(500);
  serve.timings.stop = std::chrono::seconds(20);
  serve.reload = [this]() -> Result<Loaded> {
    auto config = config_from_json(read_whole(config_path_));
    if (!config) return config.error();
    return Loaded{*config, "", config_path_, {}, {}};
  };
  if (options.change_options) options.change_options(serve);
  return supervisor_main(config_, serve);
}

Supervised::~Supervised() {
  if (ended_) return;
  const std::vector<pid_t> children = children_of(pid_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  for (const pid_t child : children) ::kill(child, SIGKILL);
  if (testing::Test::HasFailure()) std::fprintf(stderr, "%s\n", log().c_str());
}

int Supervised::wait(double seconds) {
  int status = 0;
  if (!eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) != 0; })) return -1;
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Supervised::reload(const std::function<void(Config&)>& change) {
  change(config_);
  write_whole(config_path_, config_to_json(config_));
  signal(SIGHUP);
}

std::vector<Json> Supervised::lines() const {
  std::vector<Json> all;
  std::istringstream text(log());
  for (std::string line; std::getline(text, line);)
    if (Json json = Json::parse(line, nullptr, false); json.is_object()) all.push_back(std::move(json));
  return all;
}

Json Supervised::line(const std::string& event, int count, const std::function<bool(const Json&)>& fits,
                      double seconds) const {
  Json found;
  const auto is_there = [&] {
    int seen = 0;
    for (const Json& line : lines())
      if (line.value("event", "") == event && (!fits || fits(line)) && ++seen == count) found = line;
    return !found.is_null();
  };
  if (eventually(seconds, is_there)) return found;
  ADD_FAILURE() << "no line `" << event << "` number " << count << " within " << seconds << " s in:\n"
                << log();
  return Json::object();
}

Json Supervised::told_front(const std::string& name, const std::string& state, int count,
                            double seconds) const {
  const Json found = line(
      "front got backend", count,
      [&](const Json& line) { return line["message"]["name"] == name && line["message"]["state"] == state; },
      seconds);
  return found.value("message", Json::object());
}

int Supervised::count(const std::string& event) const {
  int seen = 0;
  for (const Json& line : lines()) seen += line.value("event", "") == event ? 1 : 0;
  return seen;
}

pid_t Supervised::front_pid(int count) const { return line("front got start", count).value("child_pid", -1); }

pid_t Supervised::host_pid(const std::string& name, int count) const {
  return line("host got start", count, [&](const Json& line) { return line["name"] == name; })
      .value("child_pid", -1);
}

bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t paren = text.rfind(')');
  return paren != std::string::npos && text[paren + 2] != 'Z' && text[paren + 2] != 'X';
}

bool gone_within(pid_t pid, double seconds) {
  return eventually(seconds, [&] { return !runs(pid); });
}

}  // namespace isogate::test
