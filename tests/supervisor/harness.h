// A supervisor under test: supervisor_main in a forked process, with the test child as front and host, and
// its log read line by line.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/supervisor/supervisor.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace isogate::test {

using Json = nlohmann::json;

// Root starts a gateway only where the system users exist.
#define SKIP_WITHOUT_USERS()                                                                           \
  if (::geteuid() == 0 && (::getpwnam("isogate") == nullptr || ::getpwnam("isogate-host") == nullptr)) \
  GTEST_SKIP() << "the users isogate and isogate-host are missing: run scripts/install-deps.sh"

BackendConfig backend(const std::string& name, const std::string& act = "");
Json backend_names(const Json& message);  // in the configuration that the front got

class Supervised {
 public:
  struct Options {
    std::vector<BackendConfig> backends = {backend("one")};
    std::string instance = "normal";  // the front's behaviour
    std::function<void(Config&)> change;
    std::function<void(ServeOptions&)> change_options;
    std::vector<std::pair<std::string, std::string>> environment;
    std::string state_dir;  // empty: its own
  };
  Supervised() : Supervised(Options()) {}
  explicit Supervised(Options options);
  Supervised(const Supervised&) = delete;
  Supervised& operator=(const Supervised&) = delete;
  ~Supervised();  // kills it, if it still runs, and all its children

  void signal(int number) const { ::kill(pid_, number); }
  int wait(double seconds = 20);  // the exit code; -1: it still runs; 128+n: a signal
  void reload(const std::function<void(Config&)>& change);  // writes the configuration and sends SIGHUP

  [[nodiscard]] std::vector<Json> lines() const;
  // The count-th line (from 1) with this event for which `fits` is true. If it does not come, fails the test
  // and returns null.
  Json line(const std::string& event, int count = 1, const std::function<bool(const Json&)>& fits = {},
            double seconds = 15) const;
  // The same for messages the front got about a backend.
  Json told_front(const std::string& name, const std::string& state, int count = 1,
                  double seconds = 15) const;
  [[nodiscard]] int count(const std::string& event) const;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] pid_t front_pid(int count = 1) const;
  [[nodiscard]] pid_t host_pid(const std::string& name, int count = 1) const;
  [[nodiscard]] const std::string& state_dir() const { return config_.state_dir; }
  [[nodiscard]] std::string log() const { return read_whole(log_path_); }

 private:
  int run(const Options& options);
  TemporaryDirectory directory_;
  std::string log_path_, config_path_;
  Config config_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

bool runs(pid_t pid);  // exists and is no zombie
bool gone_within(pid_t pid, double seconds);

}  // namespace isogate::test
