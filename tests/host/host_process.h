// A backend host as the supervisor starts it; the test plays supervisor and front.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gateway/config/config.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"
#include "tests/abi/trusted_dir.h"

namespace isogate {

inline const std::string kBox = "isg-" + std::string(26, 'a');
inline const std::string kOtherBox = "isg-" + std::string(26, 'b');

class HostProcess {
 public:
  explicit HostProcess(BackendConfig backend, Config config = {});
  ~HostProcess();  // kills it if it still runs
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  // The `setting` of a first message "failed"; "nothing" where there is none.
  std::string mistaken_setting();
  // What the supervisor receives first: "ready", or the message of "failed".
  std::string first_message();
  // first_message(), which must be "ready", and Hello.
  void expect_ready();
  [[nodiscard]] const ipc::Hello& hello() const { return hello_; }

  // Sends a call with a new id, and returns the id.
  uint64_t send(ipc::Call call);
  void send_bytes(std::string_view bytes);
  // The reply to that call, whatever other replies arrive meanwhile. nullopt when the channel ended.
  std::optional<ipc::Reply> reply_to(uint64_t id);
  ipc::Reply call(ipc::Call call);

  // Convenience: calls with the sandbox filled in.
  ipc::Reply open(const std::string& agent = "agent", const std::string& box = kBox);
  ipc::Reply close(uint32_t mode = ISOGATE_CLOSE_STOP, const std::string& box = kBox);
  uint64_t start_exec(std::vector<std::string> argv, int cancel = -1, const std::string& box = kBox);
  ipc::Reply exec(std::vector<std::string> argv, std::string* output = nullptr);
  // Waits until that many other execs run in the fixture; false: not within 20 s.
  bool await_running(int count);
  ipc::Reply file(ipc::FileVerb verb, const std::string& path, std::string* output = nullptr);

  void tell(const std::string& json);  // as the supervisor
  void end_front() { front_.reset(); }
  void end_supervisor() { control_.reset(); }
  bool channel_ended();  // waits for it, up to ten seconds
  int exit_code();       // waits, up to a minute; -1: still running, -signal: killed

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] long status_number(const std::string& name) const;  // of /proc/<pid>/status
  [[nodiscard]] std::string trace() const;                          // what the fixture wrote

 private:
  TrustedDir place_;
  Fd control_, front_;
  pid_t pid_ = -1;
  uint64_t next_id_ = 1;
  ipc::Hello hello_;
  std::map<uint64_t, ipc::Reply> replies_;
};

// A backend on a fixture plugin; its configuration makes it write a trace.
BackendConfig fixture_backend(const std::string& name);

ipc::ExecCall exec_call(std::vector<std::string> argv, const std::string& box = kBox);

std::string read_all(int fd);

}  // namespace isogate
