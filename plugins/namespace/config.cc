#include "plugins/namespace/config.h"

#include "plugins/common/config_checks.h"

namespace isogate::ns {
namespace {

Config taken_from(const nlohmann::json& json) {
  const Taker take{json};
  Config config;
  config.debug = json.value("profile", "default") == "debug";
  take_limits(json, config);
  take("tmp_mb", config.tmp_mb);
  take("shm_mb", config.shm_mb);
  take_disk(json, config.disk);
  take("max_processes", config.max_processes);
  take("inits_ahead", config.inits_ahead);
  take("root", config.root);
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
