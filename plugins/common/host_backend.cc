#include "plugins/common/host_backend.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "plugins/common/or_throw.h"
#include "runner/files/workspace_state.h"

namespace isogate {
namespace {

std::unique_ptr<Runner> make_runner(sdk::Host host, RunnerOptions options) {
  options.notice = [host](const std::string& line) { host.log(ISOGATE_LOG_WARN, line); };
  return Runner::make(std::move(options));
}

}  // namespace

HostBackend::HostBackend(sdk::Host host, RunnerOptions options, bool host_view)
    : host_(host.known()),
      as_root_(::geteuid() == 0),
      host_view_(host_view),
      name_(sdk::view(host_.backend_name)),
      sandboxes_dir_(sdk::view(host_.sandboxes_dir)),
      shell_(sdk::view(host_.shell)),
      toolchain_(sdk::view(host_.toolchain_path)),
      registry_({.uids_dir = std::string(sdk::view(host_.uids_dir)), .sandboxes_dir = sandboxes_dir_}),
      disks_(sandboxes_dir_, as_root_),
      runner_(make_runner(host, std::move(options))) {}

void HostBackend::log(uint32_t level, const std::string& line) const { sdk::Host(host_).log(level, line); }

Result<void> HostBackend::open_shared_dirs() {
  if (sandboxes_dir_.empty() || name_.empty()) return invalid("the host gave no state directory");
  for (uint64_t i = 0; i < host_.shared_dir_count; ++i) {
    const std::string prefix(sdk::view(host_.shared_dirs[i].prefix)),
        path(sdk::view(host_.shared_dirs[i].path));
    Fd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) return os_error("cannot open `" + path + "`, the shared directory `" + prefix + "`", errno);
    shared_dirs_.push_back({prefix, std::move(root)});
  }
  return {};
}

void HostBackend::start_sweeper() {
  if ((host_.flags & ISOGATE_HOST_PROBE_ONLY) != 0) return;
  if (const std::string warning = disks_.warning(std::string(sdk::view(host_.uids_dir))); !warning.empty())
    log(ISOGATE_LOG_WARN, warning);
  disks_.sweep(name_, [this](const std::string& line) { log(ISOGATE_LOG_WARN, line); });
  sweeper_ = std::make_unique<TrashSweeper>(sandboxes_dir_,
                                            [this](const std::string& line) { log(ISOGATE_LOG_WARN, line); });
}

std::optional<std::string> HostBackend::why_unavailable(std::span<const Kept> needed,
                                                        const std::string& grant) const {
  const std::string lacking = as_root_ ? missing_capabilities(needed) : "";
  if (!lacking.empty()) return "root without " + lacking + ": " + grant;
  const auto state = open_state_directory(sandboxes_dir_);
  if (state) return std::nullopt;
  return state.error().message;
}

Result<Identity> HostBackend::identity_of(const isogate_sandbox_spec& spec) const {
  if (!as_root_) return Identity{};
  auto uid = registry_.assign(std::string(sdk::view(spec.sandbox_id)), uid_seed(host_, spec));
  if (!uid) return own_error(uid.error());
  return Identity{true, *uid, *uid};
}

Result<DiskWorkspace> HostBackend::open_workspace(const SandboxDisks::Wanted& wanted) {
  auto opened = open_disk_workspace(
      disks_, wanted, {sandboxes_dir_, wanted.id, wanted.identity, &shared_dirs_, host_view_, name_});
  if (!opened && as_root_)
    (void)registry_.release(wanted.id, wanted.identity.uid).ok();  // refused once there are files
  return opened;
}

Result<void> HostBackend::purge(const std::string& id, const Identity& identity, SandboxDisk& disk,
                                int cancel_fd) {
  if (auto released = disk.release(); !released) return released;
  if (auto purged = Workspace::purge(sandboxes_dir_, id, cancel_fd); !purged) return purged;
  if (sweeper_ != nullptr) sweeper_->wake();
  return identity.change ? registry_.release(id, identity.uid) : Result<void>();
}

void HostBackend::enumerate(const sdk::Call&, const sdk::RecordSink& sink) {
  for (const std::string& id : or_throw(Workspace::enumerate(sandboxes_dir_, name_))) sink.add(id, id);
}

}  // namespace isogate
