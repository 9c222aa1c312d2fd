// The built plugin, loaded as a host loads it and driven only through the C ABI.
#pragma once

#include <unistd.h>

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "lib/fd.h"
#include "lib/limits.h"

namespace isogate::test {

inline bool is_root_user() { return ::geteuid() == 0; }
std::string sandbox_id(int number);

// A backend in a state directory that outlives it.
class Backend {
 public:
  Backend(std::string state, std::string name, std::string config = "{}",
          uint32_t flags = ISOGATE_HOST_ALLOW_UNISOLATED);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const isogate_plugin* plugin = nullptr;
  const isogate_backend_api* api = nullptr;
  isogate_backend* it = nullptr;  // null: create() failed with `status` and `error`
  isogate_status status = ISOGATE_OK;
  std::string error;
  isogate_host host{};

  static std::vector<isogate_shared_dir> shared_dirs;
  static std::string toolchain, instance;

 private:
  std::string name_, sandboxes_, uids_, shell_ = "/bin/bash";
};

struct Ran {
  isogate_status status = ISOGATE_INTERNAL;
  std::string error, out, err;
  isogate_exec_result result{};
};

struct Exec {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  std::string stdin_text, cwd, user;
  Limits limits;
  bool pty = false;
  uint16_t rows = 0, cols = 0;
  int cancel_fd = -1;  // instead of the cancel event
  // Called while the program runs, with its stdin, its control pipe and the cancel event. The stdin
  // ends when it returns.
  std::function<void(Fd& in, int control, int cancel, const std::function<std::string()>& output)> beside;
};

class Box {
 public:
  struct Deferred {};  // not opened yet
  explicit Box(Backend& backend, int number = 1, const std::string& agent = "agent");
  Box(Backend& backend, Deferred);
  ~Box();
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  bool open(isogate_sandbox_spec spec, int cancel_fd = -1);
  isogate_sandbox_spec spec(uint32_t flags = 0) const;
  Ran run(const Exec& exec);
  Ran sh(const std::string& script);
  isogate_status close(uint32_t mode, int cancel_fd = -1);
  isogate_status evidence(isogate_evidence* found = nullptr, int cancel_fd = -1);

  isogate_status write(const std::string& path, const std::string& content, const std::string& user = "",
                       uint32_t flags = 0);
  std::pair<isogate_status, std::string> read(const std::string& path,
                                              uint32_t scope = ISOGATE_SCOPE_WORKSPACE,
                                              const std::string& user = "");

  Backend& backend;
  std::string id, agent;
  isogate_sandbox* it = nullptr;
  isogate_sandbox_info info{};
  isogate_status status = ISOGATE_OK;  // of the last call
  std::string error;
};

class Local : public ::testing::Test {
 protected:
  Local();
  ~Local() override;
  std::string state_;
};

// "<uid> <sandbox id>\n" of each that is registered.
std::string registered_uids(const std::string& state_dir);

isogate_str str(const std::string& text);
isogate_call call_with(int cancel_fd = -1);
isogate_error no_error();

}  // namespace isogate::test
