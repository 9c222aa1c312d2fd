// One created backend: the plugin's functions, what the host offers it, and the pointer it made.
// Made and destroyed on the main thread; everything else is [any].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/host/plugin/descriptor.h"
#include "gateway/ipc/messages.h"

namespace isogate {

struct HostPaths {
  std::string sandboxes_dir, uids_dir;  // absolute
  bool probe_only = false;              // no sandbox will be opened
  bool many_tenants = false;            // more than one may call
};

// If the users are this host's own (no isolation, or namespaces), each name in `users` must exist; with
// isolation none may be root. Only a host that keeps root checks this, because no other can become them.
Result<void> check_users(const Description& description, const BackendConfig& backend);

class Instance {
 public:
  // Checks the backend's own configuration against the plugin's schema, then creates.
  static Result<std::unique_ptr<Instance>> create(ImportedPlugin plugin, Config config, BackendConfig backend,
                                                  HostPaths places);
  // Whether the policy keeps this plugin from ever serving, whatever its configuration: it isolates nothing
  // and allow_unisolated is not set, or it runs on this host under require_remote.
  static bool forbidden(const Description& description, const Config& config);

  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();  // destroy(); every sandbox has been closed

  [[nodiscard]] const isogate_backend_api& api() const { return plugin_.api; }
  [[nodiscard]] const Description& description() const { return plugin_.description; }
  [[nodiscard]] const BackendConfig& settings() const { return backend_; }
  [[nodiscard]] isogate_backend* get() const { return made_; }
  [[nodiscard]] ipc::Hello hello() const;  // the caller fills in the counts

 private:
  Instance(ImportedPlugin plugin, Config config, BackendConfig backend, HostPaths places);
  Result<void> make();

  ImportedPlugin plugin_;
  Config config_;
  BackendConfig backend_;
  HostPaths places_;
  std::vector<isogate_shared_dir> shared_dirs_;
  isogate_host host_{};
  isogate_backend* made_ = nullptr;
};

}  // namespace isogate
