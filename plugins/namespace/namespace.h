// The backend `namespace`: programs of this host in separate namespaces, one Linux user per sandbox.
//
// A sandbox is a template (template.h) with a workspace; each exec gets a copy of the template and its own
// init (runner/enclosure/enclosure.h). Threads: as backend.h says of each function.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/common/host_backend.h"
#include "plugins/common/host_sandbox.h"
#include "plugins/namespace/config.h"
#include "plugins/namespace/template.h"
#include "runner/enclosure/enclosure.h"
#include "runner/uid/users.h"

namespace isogate::ns {

// The limits that it enforces of a sandbox and, but for the disk, of one exec.
inline constexpr uint32_t kLimited[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS,
                                        ISOGATE_LIMIT_PIDS, ISOGATE_LIMIT_DISK_BYTES};

class Sandbox;

class Backend : public HostBackend {
 public:
  Backend(sdk::Host host, std::string_view config_json);

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;

 private:
  friend class Sandbox;
  Backend(sdk::Host host, const Config& config);
  // What the operator wrote: checks all of it, opens the shared directories, and takes the toolchain.
  Result<void> take_places();
  [[nodiscard]] std::vector<std::string> own_places() const;
  Result<void> check_root() const;
  Result<void> check_shared_dirs() const;
  Result<void> take_toolchain();
  Result<void> prove();
  Result<const Base*> base();
  // Why this host cannot enforce the limits of the configuration, and the remedy; empty: it can, or need not.
  [[nodiscard]] std::string why_not_limited() const;
  struct Bounds {
    Limits limits;            // by cgroups
    uint64_t disk_bytes = 0;  // as asked for; 0: as the configuration says
    bool best_effort = false;
  };
  // Of a sandbox: the requested limits, else the configuration's.
  Bounds bounds_of(const isogate_sandbox_spec& spec, const Limits& asked) const;
  Result<Site> make_enclosure(TemplateParts parts, const Identity& identity, const Bounds& bounds, Fd* root);
  Result<Site> enclosure_of(const std::string& id, const Identity& identity, const Bounds& bounds,
                            Workspace& workspace);
  Result<void> check_ended(const std::string& id);
  void mark_ending(const std::string& id, bool ending);

  const Config config_;
  std::vector<std::string> toolchain_dirs_;
  std::shared_ptr<const EnclosureProfile> profile_;
  std::mutex mutex_;
  std::optional<Base> base_;
  bool proven_ = false;           // a program of ours has run in an enclosure, and found what it should
  std::set<std::string> ending_;  // sandboxes whose close began and did not succeed yet
};

class Sandbox : public HostSandbox {
 public:
  Sandbox(Backend& backend, std::string id, const Identity& identity, DiskWorkspace files,
          std::optional<Site> site, std::optional<Error> refusal)
      : HostSandbox(std::move(id), std::move(files), std::move(refusal)),
        backend_(backend),
        identity_(identity),
        site_(std::move(site)) {}
  ~Sandbox() override;

  void exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void evidence(const sdk::Call& call, const isogate_evidence_request& request,
                isogate_evidence& out) override;
  void connect(const sdk::Call& call, const isogate_connect_request& request) override;

 private:
  Result<void> end(uint32_t mode, int cancel_fd) override;
  [[nodiscard]] Result<User> user_named(const isogate_str& name) const override;

  Backend& backend_;
  const Identity identity_;
  const std::optional<Site> site_;  // none only where every call is refused
  std::atomic<bool> used_ = false;  // a tenant's program may have run in it
  std::mutex evidence_mutex_;
  std::optional<isogate_evidence> evidence_;  // taken before that
};

}  // namespace isogate::ns
