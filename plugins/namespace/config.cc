#include "plugins/namespace/config.h"

#include "plugins/common/config_checks.h"

namespace isogate::ns {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Config, memory_mb, cpus, pids, tmp_mb, shm_mb, max_processes,
                                                inits_ahead, root)

namespace {

Config taken_from(const nlohmann::json& json) {
  Config config = json;
  config.debug = json.value("profile", "default") == "debug";
  take_disk(json, config.disk);
  return config;
}

}  // namespace

Config parse_config(std::string_view text) {
  Config config = config_from("namespace", text, taken_from);
  check_limits("`namespace`", config);
  check_disk("`namespace`", config.disk);
  return config;
}

std::vector<std::string> relaxations_of(const Config& config) {
  std::vector<std::string> found;
  if (config.debug) found.emplace_back("profile: debug lets the programs of one exec trace each other");
  add_limits(found, "a sandbox", "", "this host", config);
  add_disk(found, config.disk);
  return found;
}

}  // namespace isogate::ns
