// The backend `docker`: a container per agent, with isogate-runner in it as pid 1 (or as an exec that stays).
// Threads: as backend.h of the SDK says for each function.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/common/disk_workspace.h"
#include "plugins/common/plugin_open.h"
#include "plugins/docker/orphans.h"
#include "plugins/docker/pool.h"
#include "plugins/docker/sandbox.h"
#include "runner/files/workspace_trash.h"

namespace isogate::docker {

// What it can do whatever its configuration, its rights and its Engine are.
inline constexpr uint64_t kAlways = ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_WATCH |
                                    ISOGATE_CAP_PORTS | ISOGATE_CAP_IMAGE | ISOGATE_CAP_SCOPE_SANDBOX |
                                    ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE | sdk::kSampledLimits;

class Backend : public sdk::Backend {
 public:
  Backend(sdk::Host host, std::string_view config_json);
  ~Backend() override;

  void probe(const sdk::Call& call, isogate_probe& out) override;
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info& info) override;
  std::unique_ptr<sdk::Sandbox> attach(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                       isogate_sandbox_info& info) override {
    return open(call, spec, info);
  }
  void enumerate(const sdk::Call& call, const sdk::RecordSink& sink) override;
  sdk::Orphans* orphans() override { return &orphans_; }

 private:
  // Finds the Engine; throws while there is none.
  Services& services();
  std::string detail_of(const EngineInfo& info, Services& services) const;
  // Why this Engine cannot be used; empty: it can. `detail` describes it. Throws as Engine::info().
  std::string examine(const sdk::Call& call, std::string& detail);
  [[nodiscard]] bool ends_with_this_host(const Services& services) const;
  SandboxDisks::Means look_at_disks(const Services& services) const;
  bool is_busy(const sdk::Call& call, std::string& detail);
  void check_asked(const isogate_sandbox_spec& spec) const;
  // Of a sandbox whose directory that is; `made_as`: see Parts::owner.
  // `disk`: of its workspace; null: of none that is opened.
  Parts parts_of(const std::string& id, const std::string& made_as, const std::string& directory,
                 const SandboxDisk* disk, uint32_t uid) const;
  Parts parts_of(const isogate_sandbox_spec& spec, const std::string& id, int directory,
                 const SandboxDisk& disk, uint32_t uid) const;
  std::unique_ptr<Pool> make_pool();
  // Removes a sandbox that no gateway knows and in which no program can have run: a gateway was killed
  // while it created it. Throws while that is not possible.
  void remove_unfinished(const std::string& id, const sdk::Call& call);
  // After a failure, which the caller gets: ends what runs; with `all` nothing stays. What the Engine
  // does not do at once is done in the background, until the next open().
  void undo(const Home& home, std::shared_ptr<Container> container, bool all) noexcept;
  // The workspace with its disk. A container that an earlier host left on a disk of another size is
  // ended.
  DiskWorkspace open_workspace(const sdk::Call& call, const isogate_sandbox_spec& spec, const OpenCall& asked,
                               bool to_close, const Identity& identity);
  // Throws ISOGATE_UNSUPPORTED: its disk would only be counted.
  void check_disk_of(const isogate_sandbox_spec& spec);
  bool open_enforced(Container& container, const isogate_sandbox_spec& spec, const sdk::Call& call);
  // For a container that is only ended.
  Container recorded_container(const std::string& id, uint32_t uid);
  // What runs of a sandbox that must not continue.
  void end_recorded(const std::string& id, const sdk::Call& call);
  // Null: the pool has none.
  std::unique_ptr<sdk::Sandbox> open_ready(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                           const OpenCall& asked, Surroundings& around,
                                           isogate_sandbox_info& info);
  Home home_of(const std::string& id, uint32_t uid, std::shared_ptr<SandboxDisk> disk);
  static std::unique_ptr<sdk::Sandbox> sandbox_of(Surroundings around, Home home,
                                                  std::shared_ptr<Container> container,
                                                  isogate_sandbox_info& info);
  Surroundings surroundings(const std::string& own_image, const sdk::Call& call);

  const sdk::Host host_;
  const Config config_;
  const bool as_root_;
  const std::string instance_, name_, sandboxes_dir_, shell_, toolchain_;
  const UidRegistry registry_;
  SandboxDisks disks_;
  std::unique_ptr<TrashSweeper> sweeper_;  // none where no sandbox is opened; ends after what purges
  std::mutex mutex_;
  std::unique_ptr<Services> services_;
  struct {
    std::string text;  // of the last good probe; empty: the last one was not
    std::chrono::steady_clock::time_point at;
  } examined_;
  std::atomic<uint64_t> limits_ = 0;  // ISOGATE_CAP_SANDBOX_LIMIT_* and _DISK_ADVISORY, as last examined
  EngineOrphans orphans_;
  std::unique_ptr<Pool> pool_;  // null: none is wanted; ends before what it uses
};

}  // namespace isogate::docker
