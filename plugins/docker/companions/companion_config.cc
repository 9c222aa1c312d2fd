#include "plugins/docker/companions/companion_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "isogate/backend.hpp"
#include "lib/text.h"
#include "plugins/common/config_checks.h"
#include "plugins/common/strict_limits.h"

namespace isogate::docker {

// What is required is empty where it is missing, which check_companions() refuses.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Healthcheck, test, interval_sec, timeout_sec, retries,
                                                start_period_sec)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PostStart, command, timeout_sec)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Companion, name, image, command, user, memory_mb, cpus, pids,
                                                read_only, tmpfs)

namespace {

using Json = nlohmann::json;

void check_tmpfs(const Companion& companion) {
  for (const std::string& path : companion.tmpfs) {
    if (!is_normal(path) || path.find(':') != std::string::npos)
      refuse("the tmpfs `" + path + "` of companion `" + companion.name +
             "` is not an absolute path without `.`, `..`, `:` and empty parts");
    for (const char* kernels : {"/proc", "/sys", "/dev"})
      if (lies_in(path, kernels))
        refuse("the tmpfs `" + path + "` of companion `" + companion.name + "` lies in " + kernels);
  }
}

void check_companion(const Companion& companion) {
  const std::string whose = "companion `" + companion.name + "`";
  const std::string& name = companion.name;
  if (!is_name(name, "-") || name.back() == '-' || std::any_of(name.begin(), name.end(), is_upper))
    refuse("the name of " + whose + " is not of a-z, 0-9 and `-` inside, at most 63");
  if (companion.image.empty()) refuse(whose + " has no image");
  check_limits(whose, companion);
  check_tmpfs(companion);
  if (companion.healthcheck && companion.healthcheck->test.empty())
    refuse("the healthcheck of " + whose + " has no test");
  if (!companion.post_start) return;
  if (companion.post_start->command.empty()) refuse("post_start of " + whose + " has no command");
  if (!companion.healthcheck)
    refuse("post_start of " + whose + " waits until it is healthy: give it a healthcheck");
}

}  // namespace

Companion companion_of(const Json& json) {
  Companion companion = json;
  const Json env = json.value("env", Json::object());
  for (const auto& [key, value] : env.items()) companion.env.emplace_back(key, value.get<std::string>());
  if (json.contains("healthcheck")) companion.healthcheck = json["healthcheck"].get<Healthcheck>();
  if (json.contains("post_start")) companion.post_start = json["post_start"].get<PostStart>();
  return companion;
}

void check_companions(const Config& config) {
  if (config.companions.empty()) return;
  if (!config.network)
    refuse(
        "companions are reached over a network, and `network` is none: set it to internal (no way out) or to "
        "dedicated");
  std::set<std::string> names{"sandbox", "localhost"};
  for (const Companion& each : config.companions) {
    check_companion(each);
    if (!names.insert(each.name).second)
      refuse("the name `" + each.name + "` of a companion is taken: give each one of its own");
  }
}

void add_relaxations(std::vector<std::string>& found, const Companion& companion) {
  const std::string who = "the companion `" + companion.name + "`";
  add_limits(found, who, " of " + who, kEngineMachine, companion);
  if (!companion.read_only) found.push_back("the root file system of " + who + " is writable");
  if (!companion.user.empty())
    found.push_back(who + " runs as " + companion.user + ", not as its sandbox's user");
}

Json json_of(const Companion& each) {
  Json json = each;
  json["env"] = each.env;
  if (const auto& check = each.healthcheck)
    json["healthcheck"] = {check->test, check->interval_sec, check->timeout_sec, check->retries,
                           check->start_period_sec};
  if (const auto& hook = each.post_start) json["post_start"] = {hook->command, hook->timeout_sec};
  return json;
}

}  // namespace isogate::docker
