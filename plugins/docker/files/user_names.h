// The names that programs find for the user of a container (getpwuid(3)). An image need not have any for the
// uid of a sandbox. Its container then has the image's own /etc/passwd and /etc/group with one line more,
// read-only, from the sandbox's directory on this host. podman does that by itself. Where workspaces are
// volumes, no single file of this host can be mounted: /etc is a volume then, made and removed with the
// container as those of copies are, with what the image has there, root's, and the two files.
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

// Enters what is missing of the names of `parts` into `parts`: empty where the image has the name, or nothing
// can be said about it. Where it is mounted from this host it is written into the sandbox's directory, `path`
// on this host; else the volume for it is entered among the copies.
void prepare_names(Services& services, Parts& parts, int directory, const std::string& path,
                   const sdk::Call& call);

// Writes what is entered into the volume of container `id`, before its start. Throws sdk::Error.
void fill_names(Services& services, const Parts& parts, const std::string& id, const sdk::Call& call);

}  // namespace isogate::docker
