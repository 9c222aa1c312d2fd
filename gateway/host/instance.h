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

// Whom `users` names has to be somebody where the users are this host's own (no isolation, or namespaces),
// and not root where there is isolation. Looked at by a host that keeps root, since no other can become them.
Result<void> check_users(const Description& description, const BackendConfig& backend);

class Instance {
 public:
  // Checks the backend's own configuration against the plugin's schema, then creates.
  static Result<std::unique_ptr<Instance>> create(ImportedPlugin plugin, Config config, BackendConfig backend,
                                                  HostPaths places);
  // Whether the policy keeps this plugin from ever serving, however right its configuration is: it isolates
  // nothing and allow_unisolated is not set, or it runs on this host under require_remote.
  static bool forbidden(const Description& description, const Config& config);

  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();  // destroy(); every sandbox has been closed

  [[nodiscard]] const isogate_backend_api& api() const { return plugin_.api; }
  [[nodiscard]] const Description& description() const { return plugin_.description; }
  [[nodiscard]] const BackendConfig& settings() const { return backend_; }
  [[nodiscard]] isogate_backend* get() const { return made_; }
  [[nodiscard]] ipc::Hello hello() const;  // the counts are for who serves it to fill in

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
