// The backend `local`: runs programs of this host beside the gateway, without isolation. For
// development.
//
// Started by root, each sandbox has its own uid (uid_registry.h) and its programs have no capability; started
// by an ordinary user, every program runs as that user, with all its rights. Errors are Results here;
// plugins/common/plugin_verbs.h turns them into the ABI's. Threads: as backend.h says of each function.
#pragma once

#include <memory>
#include <string>

#include "plugins/common/host_backend.h"
#include "runner/exec/environment.h"
#include "runner/uid/users.h"

namespace isogate::local {

class Sandbox;

class Backend : public HostBackend {
 public:
  // ISOGATE_PERMISSION_DENIED unless the operator wrote allow_unisolated. Empty text is an empty object.
  static Result<std::unique_ptr<Backend>> create(const isogate_host& host, std::string_view config_json);

  [[nodiscard]] isogate_probe probe() const;
  Result<std::unique_ptr<Sandbox>> open(const isogate_sandbox_spec& spec, isogate_sandbox_info& info);

 private:
  friend class Sandbox;
  Backend(const isogate_host& host, RunnerOptions options, const DiskPolicy& disk)
      : HostBackend(host, std::move(options), true) {
    disks_.set_policy(disk);
  }
};

class Sandbox {
 public:
  Sandbox(Backend& backend, std::string id, User user, std::unique_ptr<SandboxDisk> disk,
          std::unique_ptr<Workspace> workspace)
      : backend_(backend),
        id_(std::move(id)),
        user_(std::move(user)),
        disk_(std::move(disk)),
        workspace_(std::move(workspace)) {}

  Result<isogate_exec_result> exec(const isogate_call& call, const isogate_exec_request& request);
  Result<isogate_evidence> evidence(const isogate_evidence_request& request);
  Result<isogate_disk_use> disk_use() { return disk_->use(); }
  Result<void> close(uint32_t mode, int cancel_fd);
  Workspace& workspace() { return *workspace_; }
  [[nodiscard]] Result<User> user_named(const isogate_str& name) const;

 private:
  Backend& backend_;
  const std::string id_;
  const User user_;
  std::unique_ptr<SandboxDisk> disk_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace isogate::local
