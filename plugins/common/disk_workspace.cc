#include "plugins/common/disk_workspace.h"

#include <utility>

#include "plugins/common/or_throw.h"

namespace isogate {

Result<DiskWorkspace> open_disk_workspace(SandboxDisks& disks, const SandboxDisks::Wanted& wanted,
                                          Workspace::Options options) {
  const auto there = Workspace::exists(options.sandboxes_dir, wanted.id);
  DiskWorkspace opened;
  std::unique_ptr<SandboxDisk> to_close;
  options.home = [&](int sandbox) -> Result<Workspace::Home> {
    auto disk = disks.open(wanted, sandbox);
    if (!disk && wanted.to_close && disk.error().status != ISOGATE_SANDBOX_LOST) {
      auto closed = disks.open_to_close(wanted, sandbox);  // whatever is wrong with it, it can be ended
      if (closed) to_close = std::move(*closed);
    }
    if (!disk) return disk.error();
    opened.disk = std::move(*disk);
    auto directory = copy_of(opened.disk->home());
    if (!directory) return directory.error();
    return Workspace::Home{std::move(*directory), opened.disk->quota()};
  };
  const std::string sandboxes_dir = options.sandboxes_dir;
  auto workspace = Workspace::open(std::move(options), wanted.attach_only);
  if (workspace) {
    opened.workspace = std::move(*workspace);
    return opened;
  }
  if (to_close != nullptr) {
    opened.disk = std::move(to_close);
    auto directory = copy_of(opened.disk->home());
    if (!directory) return directory.error();
    opened.workspace = Workspace::at(std::move(*directory), nullptr);
    return opened;
  }
  if (there && !*there) {
    if (opened.disk != nullptr) (void)opened.disk->release().ok();
    opened.disk.reset();
    (void)Workspace::purge(sandboxes_dir, wanted.id).ok();
  }
  return own_error(workspace.error());
}

}  // namespace isogate
