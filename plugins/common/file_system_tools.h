// Making, checking and mounting an ext4 in an image, by the host's e2fsprogs and a loop device. The
// error has a program's output. The paths are this process's own; no tenant can name or reach them. Any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "lib/fd.h"

namespace isogate {

// Why no image can be made and mounted here; empty: nothing is known to be missing. Cheap.
std::string why_no_loop_file_systems();

// In the empty file at `path`, also open as `image` (borrowed): sparse, `bytes` long.
Result<void> make_file_system(const std::string& path, const Fd& image, uint64_t bytes);

// Whether the image has an ext4 as e2fsprogs make it for this size, as its superblock says.
bool is_file_system_of(const Fd& image, uint64_t bytes);

// e2fsck -p, and resize2fs if the size differs. It must not be mounted. ISOGATE_IO if an operator
// must repair it; ISOGATE_UNSUPPORTED if its files do not fit the size.
Result<void> check_and_fit(const std::string& path, const Fd& image, uint64_t bytes);

// nosuid, nodev. The loop device holds `image`, with its lock, until nothing uses the file system, and then
// disappears by itself.
Result<void> mount_loop(const Fd& image, const std::string& target);

}  // namespace isogate
