// The names of users and groups, as a container's /etc/passwd and /etc/group have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/error.h"

namespace isogate::agent {

// Of the line of that number; nothing: no line has it. `text` is in the format of passwd(5) or group(5).
std::optional<std::string> name_of_number(std::string_view text, uint32_t number);

// Of this process's user; `agent` where it has none. Changes with the file, and is asked for once.
std::string own_name();

// `names PASSWD GROUP`: writes both files, copies of this container's own with a line `agent` before them for this
// process's user, or group, if it has none there. They are to be mounted over those of /etc, which need not
// be there, or be readable.
Result<void> write_names(const std::string& passwd, const std::string& group);

}  // namespace isogate::agent
