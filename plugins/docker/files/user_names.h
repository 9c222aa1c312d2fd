// The names that programs find for the user of a container (getpwuid(3)). An image may have none for the uid
// of a sandbox. Its container then has the image's own /etc/passwd and /etc/group with one more line,
// read-only, from the sandbox's directory on this host. podman does that by itself. If workspaces are
// volumes, no single file of this host can be mounted: /etc is then a volume that belongs to root, created
// and removed with the container like those of copies, with the image's content and the two files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/backend.hpp"
#include "plugins/docker/container/profile.h"

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
// The content of the one regular file of a tar archive; none: it has another entry, or is cut off.
std::optional<std::string> file_in_archive(std::string_view archive);

// Enters the missing names into `parts`: empty if the image has the name, or that is not known. If the files
// are mounted from this host, they are written into the sandbox's directory, `path` on this host; else the
// volume for them is entered among the copies.
void prepare_names(Services& services, Parts& parts, int directory, const std::string& path,
                   const sdk::Call& call);

// Writes the entered files into the volume of container `id`, before its start. Throws
// sdk::Error.
void fill_names(Services& services, const Parts& parts, const std::string& id, const sdk::Call& call);

}  // namespace isogate::docker
