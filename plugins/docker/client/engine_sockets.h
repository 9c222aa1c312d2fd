// Sockets of container engines: whoever reaches one is root of its machine, so no sandbox ever sees one.
//
// It finds them in two ways. By name, for any machine: directories in which engines usually have their
// sockets. And by the file itself, for this machine, through symlinks, bind mounts and other mounts of its
// file system. It does not see the layers below an overlay. Any thread; throws only std::bad_alloc.
#pragma once

#include <string>
#include <vector>

#include "lib/fd.h"

namespace isogate::docker {

// The socket that an engine usually has at or below that path; empty: none. "*" stands for a user's number.
std::string usual_socket_in(const std::string& path);

// The sockets of engines that are on this machine now: `own`, unless empty, and the usual ones.
std::vector<std::string> sockets_here(const std::string& own);

// Which of `sockets` is seen in a recursive bind mount of `source`, an O_PATH descriptor; empty: none.
// Error: that is not known.
Result<std::string> socket_shown_in(int source, const std::vector<std::string>& sockets);

}  // namespace isogate::docker
