// The lexical checks of a tenant's path and of a sandbox's id, before the kernel sees any of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"

namespace isogate {

struct PathParts {
  std::vector<std::string> parts;  // neither empty, nor `.`, nor `..`; none at all: the root itself
  bool directory_only = false;     // it ended in a slash or in `.`

  // The first `count` parts joined by slashes; `.` for none.
  [[nodiscard]] std::string joined(size_t count) const;
  // All of it, with its trailing slash, if any.
  [[nodiscard]] std::string path() const;
  // The last part, with the trailing slash; only where there are parts.
  [[nodiscard]] std::string leaf() const;
};

// Scope ISOGATE_SCOPE_WORKSPACE: relative, one leading /workspace stripped. ISOGATE_SCOPE_SANDBOX: absolute.
Result<PathParts> parse_path(std::string_view path, uint32_t scope);

// "isg-" and 26 characters of base32 (a-z2-7): what may be the name of a sandbox's directory.
bool is_sandbox_id(std::string_view text);
Error malformed_id(std::string_view text);  // the refusal of anything else

// In backquotes for a message: at most 200 bytes of it, control characters and invalid UTF-8 as \xNN.
std::string quote_path(std::string_view path);

}  // namespace isogate
