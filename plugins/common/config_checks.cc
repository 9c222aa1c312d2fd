#include "plugins/common/config_checks.h"

#include "lib/text.h"

namespace isogate {

bool is_normal(const std::string& path) {
  return path.starts_with('/') && is_path_below(std::string_view(path).substr(1));
}

bool meets(const std::string& one, const std::string& other) {
  return lies_in(one, other) || lies_in(other, one);
}

void check_target(const std::string& what, const std::string& target, std::span<const char* const> own) {
  if (!is_normal(target))
    refuse("the " + what + " `" + target + "` is not an absolute path without `.`, `..` and empty parts");
  for (const char* each : own)
    if (meets(target, each))
      refuse("the " + what + " `" + target + "` meets " + each + ", which this backend fills itself");
}

void check_apart(const std::vector<std::string>& targets) {
  for (size_t i = 0; i < targets.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (meets(targets[i], targets[j]))
        refuse("the targets `" + targets[j] + "` and `" + targets[i] + "` are in conflict");
}

}  // namespace isogate
