// The names that programs find for the user of a container (getpwuid(3)). An image need not have any for the
// uid of a sandbox. Its container then has the image's own /etc/passwd and /etc/group with one line more,
// read-only, from the sandbox's directory on this host. podman does that by itself; a volume of an Engine
// cannot hold a single file of a directory, so that there an image has to have the name itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/backend.hpp"
#include "plugins/docker/profile.h"

namespace isogate::docker {

struct Services;

// A file of lines with a number in the third field, passwd(5) or group(5), as an image has it.
struct ImageNames {
  std::vector<uint32_t> numbers;  // sorted
  std::optional<std::string>
      text;  // none: it is too large to be written for each sandbox, or no regular file
  [[nodiscard]] bool has(uint32_t number) const;
};
struct ImageUsers {
  ImageNames users, groups;
};

// Pure.
ImageNames names_in(const std::optional<std::string>& text);
// The content of the one regular file of a tar archive; none: there is another thing in it, or it is cut.
std::optional<std::string> file_in_archive(std::string_view archive);

// Writes what is missing of the names of `parts` into the sandbox's directory, and enters the paths into
// `parts`: empty where the image has the name, or nothing can be said about it. `path`: of that directory on
// this host.
void prepare_names(Services& services, Parts& parts, int directory, const std::string& path,
                   const sdk::Call& call);

}  // namespace isogate::docker
