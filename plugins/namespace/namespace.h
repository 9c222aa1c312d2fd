// The backend `namespace`: programs of this host in namespaces of their own, one Linux user per sandbox.
//
// A sandbox is a template (template.h) with a workspace; each exec gets a copy of the template and an init of
// its own (runner/enclosure.h). Errors are Results here; runner/plugin_verbs.h turns them into the ABI's.
// Threads: as backend.h says of each function.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/namespace/config.h"
#include "plugins/namespace/template.h"
#include "runner/enclosure.h"
#include "runner/uid_registry.h"
#include "runner/users.h"
#include "runner/workspace.h"
#include "runner/workspace_trash.h"

namespace isogate::ns {

class Sandbox;

class Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const isogate_host& host, std::string_view config_json);

  [[nodiscard]] isogate_probe probe();
  Result<std::unique_ptr<Sandbox>> open(const isogate_sandbox_spec& spec, isogate_sandbox_info& info);
  Result<void> enumerate(const isogate_record_sink& sink) const;

 private:
  friend class Sandbox;
  Backend(const isogate_host& host, const Config& config);
  Result<void> prepare_profile();
  [[nodiscard]] std::vector<std::string> own_places() const;
  Result<void> check_root() const;
  Result<void> open_shared_dirs();
  Result<void> prove();
  Result<const Base*> base();
  Result<Identity> identity_of(const isogate_sandbox_spec& spec) const;
  Result<std::unique_ptr<Workspace>> open_workspace(const std::string& id, const Identity& identity,
                                                    bool attach_only);
  Result<Site> make_enclosure(const TemplateParts& parts, const Identity& identity,
                              const isogate_sandbox_spec& spec, Fd* root);
  Result<Site> enclosure_of(const std::string& id, const Identity& identity, const isogate_sandbox_spec& spec,
                            Workspace& workspace);
  void log(uint32_t level, const std::string& line) const;
  Result<void> purge(const std::string& id, const Identity& identity, int cancel_fd);
  Result<void> check_ended(const std::string& id);
  void mark_ending(const std::string& id, bool ending);

  isogate_host host_;
  Config config_;
  bool as_root_;
  std::string name_, sandboxes_dir_, shell_, toolchain_;
  UidRegistry registry_;
  std::vector<SharedDir> shared_dirs_;
  std::vector<std::string> toolchain_dirs_;
  std::shared_ptr<const EnclosureProfile> profile_;
  std::unique_ptr<Runner> runner_;
  std::mutex mutex_;
  std::optional<Base> base_;
  bool proven_ = false;           // a program of ours has run in an enclosure, and found what it should
  std::set<std::string> ending_;  // sandboxes whose close began and did not succeed yet
  std::unique_ptr<TrashSweeper> sweeper_;  // none where no sandbox is opened
};

class Sandbox {
 public:
  Sandbox(Backend& backend, std::string id, const Identity& identity, std::unique_ptr<Workspace> workspace,
          const Site& site);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  Result<isogate_exec_result> exec(const isogate_call& call, const isogate_exec_request& request);
  Result<isogate_evidence> evidence(const isogate_evidence_request& request);
  Result<void> close(uint32_t mode, int cancel_fd);
  Result<Workspace*> files(const isogate_str& user, std::unique_ptr<Workspace>& other);

 private:
  [[nodiscard]] Result<User> user_named(const isogate_str& name) const;

  Backend& backend_;
  std::string id_;
  Identity identity_;
  std::unique_ptr<Workspace> workspace_;
  const Site site_;
  std::atomic<bool> used_ = false;  // a tenant's program may have run in it
  std::mutex evidence_mutex_;
  std::optional<isogate_evidence> evidence_;  // taken before that
};

}  // namespace isogate::ns
