// The workspace of a sandbox in what bounds its disk. Any thread.
#pragma once

#include <memory>

#include "plugins/common/sandbox_disk.h"
#include "runner/files/workspace.h"

namespace isogate {

struct DiskWorkspace {
  std::unique_ptr<SandboxDisk> disk;
  std::unique_ptr<Workspace> workspace;  // in it; ends first
};

// `options` without a home. To close, and where its disk cannot be opened: the sandbox's
// directory in the place of the workspace. Where it fails, nothing is left of a sandbox that was not there
// before.
Result<DiskWorkspace> open_disk_workspace(SandboxDisks& disks, const SandboxDisks::Wanted& wanted,
                                          Workspace::Options options);

}  // namespace isogate
