#include "plugins/docker/companions/companion_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "isogate/backend.hpp"
#include "lib/text.h"
#include "plugins/common/config_checks.h"
#include "plugins/common/strict_limits.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

Healthcheck healthcheck_of(const Json& json) {
  const Taker take{json};
  Healthcheck check;
  json.at("test").get_to(check.test);
  take("interval_sec", check.interval_sec);
  take("timeout_sec", check.timeout_sec);
  take("retries", check.retries);
  take("start_period_sec", check.start_period_sec);
  return check;
}

PostStart post_start_of(const Json& json) {
  const Taker take{json};
  PostStart hook;
  json.at("command").get_to(hook.command);
  take("timeout_sec", hook.timeout_sec);
  return hook;
}

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
  const Taker take{json};
  Companion companion;
  json.at("name").get_to(companion.name);
  json.at("image").get_to(companion.image);
  take("command", companion.command);
  const Json env = json.value("env", Json::object());
  for (const auto& [key, value] : env.items()) companion.env.emplace_back(key, value.get<std::string>());
  take("user", companion.user);
  take_limits(json, companion);
  take("read_only", companion.read_only);
  take("tmpfs", companion.tmpfs);
  if (json.contains("healthcheck")) companion.healthcheck = healthcheck_of(json.at("healthcheck"));
  if (json.contains("post_start")) companion.post_start = post_start_of(json.at("post_start"));
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
  Json json = {{"name", each.name},  {"image", each.image}, {"command", each.command},
               {"env", each.env},    {"user", each.user},   {"memory_mb", each.memory_mb},
               {"cpus", each.cpus},  {"pids", each.pids},   {"read_only", each.read_only},
               {"tmpfs", each.tmpfs}};
  if (const auto& check = each.healthcheck)
    json["healthcheck"] = {check->test, check->interval_sec, check->timeout_sec, check->retries,
                           check->start_period_sec};
  if (const auto& hook = each.post_start) json["post_start"] = {hook->command, hook->timeout_sec};
  return json;
}

}  // namespace isogate::docker
