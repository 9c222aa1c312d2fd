// The backend `local`: programs of this host, run beside the gateway without isolation. For development.
//
// Started by root, each sandbox has a uid of its own (uid_registry.h) and its programs have no capability;
// started by an ordinary user, every program runs as that user and can reach what it can. Errors are Results
// here; plugin.cc turns them into the ABI's. Threads: as backend.h says of each function.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plugins/local/config.h"
#include "runner/environment.h"
#include "runner/uid_registry.h"
#include "runner/users.h"
#include "runner/workspace.h"
#include "runner/workspace_trash.h"

namespace isogate::local {

class Sandbox;

class Backend {
 public:
  // ISOGATE_PERMISSION_DENIED unless the operator wrote allow_unisolated.
  static Result<std::unique_ptr<Backend>> create(const isogate_host& host, std::string_view config_json);

  [[nodiscard]] isogate_probe probe() const;
  Result<std::unique_ptr<Sandbox>> open(const isogate_sandbox_spec& spec, isogate_sandbox_info& info);
  Result<void> enumerate(const isogate_record_sink& sink) const;

 private:
  friend class Sandbox;
  Backend(const isogate_host& host, const Config& config);
  Result<void> open_shared_dirs();
  Result<User> user_of(const isogate_sandbox_spec& spec) const;

  isogate_host host_;
  bool as_root_;
  std::string name_, sandboxes_dir_, shell_, toolchain_, own_name_;
  UidRegistry registry_;
  std::vector<SharedDir> shared_dirs_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<TrashSweeper> sweeper_;  // none where no sandbox is opened
};

class Sandbox {
 public:
  Sandbox(Backend& backend, std::string id, User user, std::unique_ptr<Workspace> workspace)
      : backend_(backend), id_(std::move(id)), user_(std::move(user)), workspace_(std::move(workspace)) {}

  Result<isogate_exec_result> exec(const isogate_call& call, const isogate_exec_request& request);
  Result<isogate_evidence> evidence(const isogate_evidence_request& request);
  Result<void> close(uint32_t mode, int cancel_fd);

  // The workspace as this user: the sandbox's own when it is empty, or `other`, which then holds the view.
  Result<Workspace*> files(const isogate_str& user, std::unique_ptr<Workspace>& other);

 private:
  Result<User> user_named(const isogate_str& name) const;

  Backend& backend_;
  std::string id_;
  User user_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace isogate::local
