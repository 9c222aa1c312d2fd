// Files that decide what this gateway does: plugins, the configuration, certificates.
//
// Who can change such a file, or a directory above it, decides in the gateway's place. So all of them belong
// to root or to this process's user, and nobody else may write there. What is checked is what is opened: each
// component below the one before, by descriptor. [any]
#pragma once

#include <string>

#include "lib/error.h"
#include "lib/fd.h"

namespace isogate {

struct TrustedPath {
  bool directory = false;
  // What is there already, as an administrator's tools place it: the last component may be a symbolic link, a
  // path may have `..` in it, and the file may be in a sticky directory, where others cannot replace it.
  // Without, as for a plugin, the file is where it is named, and nobody else can put one there first.
  bool links = false;
};

// The directory (O_PATH) or regular file (for reading) at an absolute path, if nobody but root and this
// process's user can change what is found there. Symbolic links above it are followed where they are as safe.
// A missing last part is not found, if what would hold it is safe. An error names the owner and the remedy:
// chown, chmod.
Result<Fd> open_trusted(const std::string& path, TrustedPath kind = {});

// A file of the configuration, for reading; `attempt` begins the messages: "cannot read the configuration
// `x`". Root's process opens only what open_trusted() with `links` does, a relative path being below the
// working directory; for another user's process the file need only be readable.
Result<Fd> open_settings_file(const std::string& path, const std::string& attempt);

}  // namespace isogate
