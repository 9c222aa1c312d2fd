// Files of the operator: certificates, keys, tokens and the configuration that names them. Never a tenant's.
#pragma once

#include <optional>
#include <string>

namespace isogate::net {

// All of a regular file of at most 1 MiB; nothing when there is none. Never blocks. Throws sdk::Error
// with ISOGATE_INVALID_ARGUMENT.
std::optional<std::string> read_operator_file(const std::string& path);

}  // namespace isogate::net
