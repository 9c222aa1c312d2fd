// Sandboxes created in advance: running containers without an agent, each with its own workspace and uid. A
// new agent's first call takes one: a directory is renamed, its uid is handed over, no container is created.
//
// On disk: <sandboxes_dir>/ready.<backend>/<id>/ becomes <sandboxes_dir>/<sandbox_id>/. It is locked
// (flock(2)) while its maker lives, so that the next maker removes what a crash has left, and keeps what
// another generation of the backend has ready.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "plugins/common/disk_workspace.h"
#include "plugins/common/warm_pool.h"
#include "plugins/docker/container/container.h"
#include "runner/uid/uid_registry.h"

namespace isogate::docker {

struct PooledContainer {
  std::string id;
  uint32_t uid = 0;
  Limits limits;
  Fd lock;
  std::shared_ptr<SandboxDisk> disk;
  std::unique_ptr<Container> container;

  [[nodiscard]] bool warm() const { return container->seems_connected(); }
};

class Pool final : WarmPool<PooledContainer>::Source {
 public:
  struct Options {
    sdk::Host host;
    unsigned size = 0;
    std::string sandboxes_dir, uids_dir, backend;
    bool own_uids = false;
    Limits limits;  // of the first ones
    DiskPolicy disk;
    // Both may throw sdk::Error. Of a sandbox whose directory is `directory`.
    std::function<Services&()> services;
    std::function<Parts(const std::string& id, const std::string& directory, const SandboxDisk* disk,
                        uint32_t uid)>
        parts;
  };
  explicit Pool(Options options);

  // One with these limits, now the sandbox `id` at <sandboxes_dir>/<id>, which must not be there yet; its
  // disk has that path, and the lock. None: it has to be made. Any thread. Throws sdk::Error.
  std::optional<PooledContainer> take(const std::string& id, const Limits& limits);
  // Whether an earlier pool of this backend did not end in order.
  static bool left_anything(const std::string& sandboxes_dir, const std::string& backend);
  [[nodiscard]] std::string text() const { return pool_.text(); }

 private:
  PooledContainer make(const Limits& limits, const sdk::Call& call) override;
  bool remove(PooledContainer ready) noexcept override;
  void tend(const sdk::Call& call) override;
  void remove_leftover(int parent, const std::string& id);
  std::unique_ptr<Container> container_of(const std::string& id, const SandboxDisk* disk, uint32_t uid,
                                          const Limits& limits);

  const Options options_;
  const std::string directory_;
  const UidRegistry registry_;
  SandboxDisks disks_;
  std::atomic<bool> left_behind_{true};  // there may be leftovers, now or when another maker has died
  std::chrono::steady_clock::time_point next_look_{};  // for leftovers; the pool's thread's
  WarmPool<PooledContainer> pool_;                     // the last member: it ends first
};

}  // namespace isogate::docker
