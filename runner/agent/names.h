// The names of users and groups in a container's /etc/passwd and /etc/group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/error.h"

namespace isogate::agent {

// Of the line of that number; nothing: no line has it. `text` is in the format of passwd(5) or group(5).
std::optional<std::string> name_of_number(std::string_view text, uint32_t number);

// Of this process's user; `agent` if it has none. The result changes with the file: call it once.
std::string own_name();

// `names PASSWD GROUP`: writes copies of this container's two files. If this process's user or group has no
// line, a line `agent` comes first. Mount the copies over those of /etc, which may be missing or unreadable.
Result<void> write_names(const std::string& passwd, const std::string& group);

}  // namespace isogate::agent
