// The backend `local`: runs programs of this host beside the gateway, without isolation. For
// development.
//
// Started by root, each sandbox has its own uid (uid_registry.h) and its programs have no capability; started
// by an ordinary user, every program runs as that user, with all its rights. Threads: as backend.h says of
// each function.
#pragma once

#include <memory>
#include <string>

#include "plugins/common/host_backend.h"
#include "plugins/common/host_sandbox.h"
#include "runner/exec/environment.h"
#include "runner/uid/users.h"

namespace isogate::local {

struct Config {
  RunnerOptions runner;
  DiskPolicy disk;
};

class Backend : public HostBackend {
 public:
  // ISOGATE_PERMISSION_DENIED unless the operator wrote allow_unisolated. Empty text is an empty object.
  Backend(sdk::Host host, std::string_view config_json);

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;

 private:
  friend class Sandbox;
  Backend(sdk::Host host, Config config);
};

class Sandbox : public HostSandbox {
 public:
  Sandbox(Backend& backend, std::string id, User user, DiskWorkspace files, std::optional<Error> refusal)
      : HostSandbox(std::move(id), std::move(files), std::move(refusal)),
        backend_(backend),
        user_(std::move(user)) {}

  void exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override;

 private:
  Result<void> end(uint32_t mode, int cancel_fd) override;
  [[nodiscard]] Result<User> user_named(const isogate_str& name) const override;

  Backend& backend_;
  const User user_;
};

}  // namespace isogate::local
