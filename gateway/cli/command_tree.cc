#include "gateway/cli/command_tree.h"

#include "lib/text.h"

namespace isogate::cli {
std::vector<std::string> OptionInfo::choices() const {
  std::vector<std::string> all;
  if (value.find('|') == std::string::npos) return all;
  for (const std::string_view part : split(value, '|')) all.emplace_back(part);
  return all;
}

}  // namespace isogate::cli
