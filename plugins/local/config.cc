#include "plugins/local/config.h"

#include <nlohmann/json.hpp>

namespace isogate::local {

Result<Config> parse_config(std::string_view json) {
  Config config;
  if (json.empty()) return config;
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (!document.is_object()) return invalid("the configuration of `local` is not a JSON object");
  for (const auto& [key, value] : document.items()) {
    if (key != "cgroups") return invalid("the configuration of `local` has no setting `" + key + "`");
    if (value != "auto" && value != "never")
      return invalid("`cgroups` of `local` must be \"auto\" or \"never\"");
    config.use_cgroups = value == "auto";
  }
  return config;
}

}  // namespace isogate::local
