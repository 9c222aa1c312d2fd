// A real gateway for a test: `isogate serve` from the build directory, with its own state directory,
// listening on a loopback port that the kernel chose and on a Unix socket.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/http.h"
#include "tests/support/program.h"

namespace isogate::test {

struct GatewayOptions {
  // The configuration file. What it leaves out of listen, state_dir and plugin_dir is filled in with a free
  // port and a socket, a temporary directory, and the build's plugins.
  std::string yaml;
  std::vector<std::string> arguments;  // after `serve --config FILE`
  std::vector<std::pair<std::string, std::string>> env;
  std::string state_dir;   // of an earlier gateway, to start on what it left; empty: a fresh one
  bool wait_ready = true;  // false: returns when it answers /livez, ready or not
  double timeout_sec = 30;
  bool over_unix = false;  // its TCP listener uses TLS: readiness is requested over the Unix socket
  uid_t run_as = 0;        // if root runs this test: the user that starts it; 0: root
  std::string cgroup;      // a cgroup2 directory that it is moved to before its start; empty: this process's
};

class Gateway {
 public:
  // Throws std::runtime_error, with the log, when it ends or is not ready in time.
  explicit Gateway(GatewayOptions options);
  explicit Gateway(const std::string& yaml);
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;
  ~Gateway();  // stop()

  // SIGTERM and wait. The test fails unless it ends with exit code 0 in that time. Once.
  void stop(double timeout_sec = 45);
  void signal(int number) const { program_->signal(number); }
  void kill();  // SIGKILL; waits for its end
  // Writes another configuration and sends SIGHUP; waits for the result in the log.
  void reload(const std::string& yaml);
  // Waits for an end that the test itself caused; the exit code, or -1: it still runs. Then stop() does
  // nothing.
  int wait(double seconds);

  [[nodiscard]] const std::string& url() const { return url_; }  // http://127.0.0.1:PORT
  [[nodiscard]] std::string port() const { return url_.substr(url_.rfind(':') + 1); }
  [[nodiscard]] std::string unix_url() const { return "unix:" + state_dir_ + "/isogate.sock"; }
  [[nodiscard]] std::string e2b_url() const;  // its first listener for E2B's SDKs, on loopback
  [[nodiscard]] std::string key() const;      // <state-dir>/local.key
  [[nodiscard]] pid_t pid() const { return program_->pid(); }  // the supervisor's
  [[nodiscard]] const std::string& state_dir() const { return state_dir_; }
  // The record of a start is written a moment after it.
  [[nodiscard]] bool has_journaled(const std::string& exec_id) const;
  [[nodiscard]] std::string log() const;                                              // its stderr so far
  [[nodiscard]] bool logs(const std::string& text, double seconds = 20) const;        // within that time
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> client_env() const;  // ISOGATE_URL, …

  // A JSON call over TCP with the key; GET without a body.
  HttpResponse post(const std::string& path, const std::string& json);
  HttpResponse get(const std::string& path);
  HttpResponse call(const std::string& method, const std::string& path, Headers headers = {},
                    const std::string& body = {});

 private:
  void discover_port(double timeout_sec);
  void await(const std::string& url, const std::string& path, double timeout_sec);
  TemporaryDirectory directory_;
  std::string state_dir_, log_path_, url_;
  std::unique_ptr<Program> program_;
  bool stopped_ = false;
};

}  // namespace isogate::test
