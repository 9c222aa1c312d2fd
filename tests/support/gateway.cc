#include "tests/support/gateway.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <thread>

#include "tests/eventually.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

bool sets(const std::string& yaml, const std::string& key) {
  return std::regex_search("\n" + yaml, std::regex("\n" + key + ":"));
}

std::string completed(const std::string& yaml, const std::string& state_dir) {
  std::string text = yaml + "\n";
  if (!sets(yaml, "listen")) text += "listen: [\"127.0.0.1:0\", \"unix:" + state_dir + "/isogate.sock\"]\n";
  if (!sets(yaml, "state_dir")) text += "state_dir: " + state_dir + "\n";
  if (!sets(yaml, "plugin_dir")) text += "plugin_dir: " ISOGATE_BUILD_DIR "/plugins\n";
  return text;
}

// Started as this user and with only its group.
void become(uid_t uid, std::vector<std::string>& argv) {
  const std::string id = std::to_string(uid);
  const std::vector<std::string> front = {"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"};
  argv.insert(argv.begin(), front.begin(), front.end());
}

void enter(const std::string& cgroup, std::vector<std::string>& argv) {
  const std::vector<std::string> front = {"sh", "-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", cgroup};
  argv.insert(argv.begin(), front.begin(), front.end());
}

void give(const std::string& directory, uid_t uid) {
  if (::mkdir(directory.c_str(), 0700) != 0 || ::chown(directory.c_str(), uid, static_cast<gid_t>(uid)) != 0)
    throw std::runtime_error("cannot make " + directory + " for uid " + std::to_string(uid));
}

// The loopback TCP port in the log; 0: none yet.
int logged_port(const std::string& log) {
  static const std::regex listening("\"event\":\"listening\",\"listen\":\"127\\.0\\.0\\.1:([0-9]+)");
  std::smatch port;
  return std::regex_search(log, port, listening) ? std::stoi(port[1]) : 0;
}

}  // namespace

Gateway::Gateway(const std::string& yaml) : Gateway(GatewayOptions{.yaml = yaml}) {}

Gateway::Gateway(GatewayOptions options) {
  state_dir_ = options.state_dir.empty() ? directory_.path() + "/state" : options.state_dir;
  log_path_ = directory_.path() + "/log";
  std::string config = directory_.file("isogate.yaml", completed(options.yaml, state_dir_));
  std::vector<std::string> argv = {isogate_binary(), "serve", "--config", config};
  if (options.run_as != 0 && ::geteuid() == 0) {
    become(options.run_as, argv);
    if (options.state_dir.empty()) give(state_dir_, options.run_as);
  }
  if (!options.cgroup.empty()) enter(options.cgroup, argv);
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  ProgramOptions how;
  how.env = options.env;
  how.err_file = log_path_;
  program_ = std::make_unique<Program>(argv, how);
  discover_port(options.timeout_sec);
  await(options.over_unix ? unix_url() : url_, options.wait_ready ? "/readyz" : "/livez",
        options.timeout_sec);
}

void Gateway::reload(const std::string& yaml) {
  const auto reloads = [this] {
    size_t count = 0;
    const std::string text = log();
    for (size_t at = 0; (at = text.find("\"event\":\"reloaded\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const size_t before = reloads();
  directory_.file("isogate.yaml", completed(yaml, state_dir_));
  signal(SIGHUP);
  const auto start = Clock::now();
  while (reloads() == before) {
    if (since(start) > 30) throw std::runtime_error("the gateway does not reload:\n" + log());
    pause();
  }
}

Gateway::~Gateway() {
  if (!stopped_) stop();
}

void Gateway::discover_port(double timeout_sec) {
  auto start = Clock::now();
  int port = 0;
  while ((port = logged_port(log())) == 0) {
    if (program_->wait(0.01)) {
      stopped_ = true;
      throw std::runtime_error("the gateway ended with exit code " +
                               std::to_string(program_->result.exit_code) + ":\n" + log());
    }
    if (since(start) > timeout_sec) throw std::runtime_error("the gateway does not listen:\n" + log());
  }
  url_ = "http://127.0.0.1:" + std::to_string(port);
}

void Gateway::await(const std::string& url, const std::string& path, double timeout_sec) {
  auto start = Clock::now();
  std::string last = "no answer";
  while (since(start) < timeout_sec) {
    if (program_->wait(0.01)) break;
    try {
      HttpResponse response = HttpConnection(url, 2).request("GET", path);
      if (response.status == 200) return;
      last = std::to_string(response.status) + " " + response.body;
    } catch (const std::runtime_error& error) {
      last = error.what();
    }
    pause();
  }
  stopped_ = program_->wait(0);
  throw std::runtime_error("the gateway does not answer " + path + " with 200 (" + last + "):\n" + log());
}

void Gateway::stop(double timeout_sec) {
  if (stopped_) return;
  stopped_ = true;
  program_->signal(SIGTERM);
  if (!program_->wait(timeout_sec)) {
    ADD_FAILURE() << "the gateway still runs " << timeout_sec << " s after SIGTERM:\n" << log();
    program_->signal(SIGKILL);
    program_->wait(5);
  } else if (log().find("front_crashed_while_stopping") != std::string::npos) {
    ADD_FAILURE() << "the front crashed while it stopped:\n" << log();
  } else if (program_->result.exit_code != 0) {
    ADD_FAILURE() << "the gateway ended with exit code " << program_->result.exit_code << ":\n" << log();
  }
}

int Gateway::wait(double seconds) {
  if (!program_->wait(seconds)) return -1;
  stopped_ = true;
  return program_->result.exit_code;
}

void Gateway::kill() {
  signal(SIGKILL);
  EXPECT_EQ(wait(45), 128 + SIGKILL);
}

bool Gateway::has_journaled(const std::string& exec_id) const {
  for (const char* file : {"/front/state.db-wal", "/front/state.db"})
    if (read_whole(state_dir_ + file).find(exec_id) != std::string::npos) return true;
  return false;
}

std::string Gateway::key() const {
  std::string text = read_whole(state_dir_ + "/local.key");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

std::string Gateway::e2b_url() const {
  std::smatch found;
  const std::string text = log();
  if (!std::regex_search(text, found, std::regex("unix:\\S+ 127\\.0\\.0\\.1:([0-9]+)")))
    throw std::runtime_error("no listener for E2B's SDKs:\n" + text);
  return "http://127.0.0.1:" + found[1].str();
}

std::string Gateway::log() const { return read_whole(log_path_); }

bool Gateway::logs(const std::string& text, double seconds) const {
  return eventually(seconds, [&] { return log().find(text) != std::string::npos; });
}

std::vector<std::pair<std::string, std::string>> Gateway::client_env() const {
  return {{"ISOGATE_URL", url_}, {"ISOGATE_KEY", key()}};
}

HttpResponse Gateway::call(const std::string& method, const std::string& path, Headers headers,
                           const std::string& body) {
  headers.emplace_back("Authorization", "Bearer " + key());
  return http_call(url_, method, path, headers, body);
}

HttpResponse Gateway::post(const std::string& path, const std::string& json) {
  return call("POST", path, {{"Content-Type", "application/json"}}, json);
}

HttpResponse Gateway::get(const std::string& path) { return call("GET", path); }

}  // namespace isogate::test
