// The workspace of a sandbox together with its disk. Any thread.
#pragma once

#include <memory>

#include "plugins/common/sandbox_disk.h"
#include "runner/files/workspace.h"

namespace isogate {

struct DiskWorkspace {
  std::unique_ptr<SandboxDisk> disk;
  std::unique_ptr<Workspace> workspace;  // in it; ends first
};

// `options` without a home. If it is opened only to be closed and its disk cannot be opened: the sandbox's
// directory in place of the workspace. If it fails, nothing is left of a new sandbox.
Result<DiskWorkspace> open_disk_workspace(SandboxDisks& disks, const SandboxDisks::Wanted& wanted,
                                          Workspace::Options options);

}  // namespace isogate
