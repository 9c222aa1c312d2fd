// Files that decide what this gateway does: plugins, the configuration, certificates.
//
// Whoever can change such a file, or a directory above it, controls the gateway. So all of them belong to
// root or to this process's user, and nobody else may write there. The checked file is the opened file: each
// component is opened below the one before, by descriptor. [any]
#pragma once

#include <string>

#include "lib/error.h"
#include "lib/fd.h"

namespace isogate {

struct TrustedPath {
  bool directory = false;
  // With it, for files that an administrator's tools place: the last component may be a symbolic link, a path
  // may have `..` in it, and the file may be in a sticky directory, where others cannot replace it. Without
  // it, as for a plugin, the file is at exactly this path, and nobody else can create one there first.
  bool links = false;
};

// The directory (O_PATH) or regular file (for reading) at an absolute path, if only root and this process's
// user can change it. Symbolic links above it are followed if they are as safe. A missing last component is
// "not found" if its parent is safe. An error names the owner and the remedy: chown, chmod.
Result<Fd> open_trusted(const std::string& path, TrustedPath kind = {});

// A file of the configuration, for reading; `attempt` begins the messages: "cannot read the configuration
// `x`". Root's process opens only what open_trusted() with `links` does, a relative path being below the
// working directory; for another user's process the file need only be readable.
Result<Fd> open_settings_file(const std::string& path, const std::string& attempt);

}  // namespace isogate
