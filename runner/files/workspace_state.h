// The backend host's own small files in the directory of a sandbox, which no tenant can reach. Written whole
// or not at all, also at a power failure: an empty one would name another owner.
#pragma once

#include <optional>
#include <string>

#include "lib/fd.h"

namespace isogate {

inline constexpr const char* kUidFile = "uid";          // the sandbox's uid, in decimal
inline constexpr const char* kBackendFile = "backend";  // the name of the backend whose sandbox it is

// `fd`, or -errno, of a directory that belongs to this process's user and that no other may write, or,
// `private_to_us`, use. `what` is for messages.
Result<Fd> checked_directory(int fd, const char* what, bool private_to_us = false);

// The sandboxes directory, or the directory of one sandbox: O_RDONLY, ours, no symlink; ENOENT as os_errno.
Result<Fd> open_state_directory(const std::string& path);
Result<Fd> open_sandbox_directory(int sandboxes, const std::string& sandbox_id);

// At most 64 KiB, else an error; a newline at the end is left out. nullopt: no such file.
Result<std::optional<std::string>> read_state_file(int dir, const std::string& name);

// False: it exists already, unchanged.
Result<bool> create_state_file(int dir, const std::string& name, const std::string& content);
Result<void> replace_state_file(int dir, const std::string& name, const std::string& content);

}  // namespace isogate
