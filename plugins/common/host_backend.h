// The common part of backends whose sandboxes are directories and processes of this host: users, shared
// directories, the runner, the list of existing sandboxes. A base class; any thread may use its members once
// the backend is constructed.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isogate/backend.hpp"
#include "plugins/common/disk_workspace.h"
#include "runner/exec/command.h"
#include "runner/exec/kept_capabilities.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_trash.h"
#include "runner/uid/uid_registry.h"

namespace isogate {

class HostBackend : public sdk::Backend {
 public:
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) final {
    return open(call, spec, info);
  }
  void enumerate(const sdk::Call& call, const sdk::RecordSink& sink) override;

 protected:
  // `host_view`: ISOGATE_SCOPE_SANDBOX means the files of this host.
  HostBackend(sdk::Host host, RunnerOptions options, bool host_view);

  // The steps of a constructor. ISOGATE_INVALID_ARGUMENT without a state directory; the error of a shared
  // directory that cannot be opened.
  Result<void> open_shared_dirs();
  void start_sweeper();  // for purged sandboxes and left mounts; unless the host only probes

  // Why no sandbox can be opened, with the remedy `grant` for missing capabilities; nothing: it can.
  std::optional<std::string> why_unavailable(std::span<const Kept> needed, const std::string& grant) const;
  // The sandbox's own uid if root started the gateway, else this process's.
  Result<Identity> identity_of(const isogate_sandbox_spec& spec) const;
  // If it fails, nothing is left of a new sandbox, and its uid is released.
  Result<DiskWorkspace> open_workspace(const SandboxDisks::Wanted& wanted);
  // Removes all files of a sandbox, then releases its uid.
  Result<void> purge(const std::string& id, const Identity& identity, SandboxDisk& disk, int cancel_fd);
  void log(uint32_t level, const std::string& line) const;
  // The operator wrote `limits: best_effort` for this backend.
  [[nodiscard]] bool limits_best_effort() const {
    return (host_.flags & ISOGATE_HOST_LIMITS_BEST_EFFORT) != 0;
  }

  const isogate_host host_;
  const bool as_root_, host_view_;
  const std::string name_, sandboxes_dir_, shell_, toolchain_;
  const UidRegistry registry_;
  std::vector<SharedDir> shared_dirs_;
  SandboxDisks disks_;
  const std::unique_ptr<Runner> runner_;
  std::unique_ptr<TrashSweeper> sweeper_;  // none where no sandbox is opened; ends first
};

}  // namespace isogate
