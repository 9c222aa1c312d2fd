// The paths of E2B's SDKs, which are absolute or begin at the home directory, as paths of the contract. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isogate::front::e2b {

struct Place {
  uint32_t scope = 0;  // ISOGATE_SCOPE_*
  std::string path;    // of the workspace: relative to it; "." is itself
  std::string shown;   // absolute, as SDKs are answered
};

// `home` is absolute. `..` is resolved in the text: a symlink in front of it is not considered.
Place place_of(std::string_view path, std::string_view home);

// A directory's member.
std::string below(std::string_view directory, std::string_view name);

}  // namespace isogate::front::e2b
