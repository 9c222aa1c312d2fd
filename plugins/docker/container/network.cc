#include "plugins/docker/container/network.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/fd.h"
#include "lib/hash.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/await_late.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {
namespace {

// In the sandbox's directory: the id of the network that we created; while it is being created, its name,
// which nobody can guess.
constexpr const char* kNetworkFile = "network";

std::string recorded(int directory) {
  return own_or_throw(read_state_file(directory, kNetworkFile)).value_or("");
}

Json options_of(const Config& config) {
  Json options = {{"com.docker.network.bridge.enable_icc", config.companions.empty() ? "false" : "true"}};
  if (config.internal) options["com.docker.network.bridge.inhibit_ipv4"] = "true";
  return options;
}

bool is_as_configured(const Config& config, const Json& seen) {
  if (seen.value("Internal", false) != config.internal || seen.value("EnableIPv6", false)) return false;
  const Json there = seen.value("Options", Json::object());
  const Json wanted = options_of(config);
  for (const auto& [key, value] : wanted.items())
    if (!there.is_object() || value != there.value(key, "")) return false;
  return true;
}

enum class There { kNo, kAsConfigured, kOtherwise };

struct Found {
  There there = There::kNo;
  std::string id;
};

// Whether the recorded network is there and ours.
Found look_at_network(Services& services, const Owner& owner, const std::string& which,
                      const sdk::Call& call) {
  Json seen;
  if (!net::unless_gone([&] { seen = services.engine.inspect(which, call, ObjectKind::kNetwork); }))
    return {};
  const std::string id = seen.value("Id", "");
  if ((id != which && seen.value("Name", "") != which) || !carries(seen.value("Labels", Json()), owner))
    return {};
  return {is_as_configured(services.config, seen) ? There::kAsConfigured : There::kOtherwise, id};
}

// While its name is recorded, it may still be created.
Found look_for_network(Services& services, const Owner& owner, const std::string& which,
                       const sdk::Call& call) {
  Found found;
  await_late(which.starts_with(owner.sandbox_id + "."), Budget(call, kMadeLate), [&] {
    found = look_at_network(services, owner, which, call);
    return found.there != There::kNo;
  });
  return found;
}

// In Docker's words, and in podman's.
bool says_no_addresses(const std::string& text) {
  return text.find("address pool") != std::string::npos || text.find("subnet pool") != std::string::npos;
}

void forget(int directory) {
  if (::unlinkat(directory, kNetworkFile, 0) != 0 && errno != ENOENT)
    fail_with_io("cannot forget the network of a sandbox", errno);
}

std::string create(Services& services, const Owner& owner, int directory, const std::string& name,
                   const sdk::Call& call) {
  const Config& config = services.config;
  const Json body = {
      {"Driver", "bridge"},  {"Internal", config.internal},           {"Attachable", false},
      {"EnableIPv6", false}, {"Labels", labels_of(owner, "network")}, {"Options", options_of(config)}};
  try {
    return services.engine.create_network(name, body, call);
  } catch (const NetError& error) {
    if (!error.maybe_done()) forget(directory);
    if (!says_no_addresses(error.what())) throw;
    throw sdk::Error(ISOGATE_RESOURCE_EXHAUSTED,
                     "this Engine has no addresses left for the network of another sandbox: end some, lower "
                     "`warm_pool`, or give the Engine more `default-address-pools`");
  }
}

// Checked, not trusted: an Engine that does not know an option may drop it.
void check_internal(Services& services, const Owner& owner, const std::string& id, const sdk::Call& call) {
  if (!services.config.internal || look_for_network(services, owner, id, call).there == There::kAsConfigured)
    return;
  throw sdk::Error(
      ISOGATE_UNAVAILABLE,
      "this Engine does not keep a network apart from its machine: `network: internal` is refused");
}

}  // namespace

std::string prepare_network(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  const std::string before = recorded(directory);
  const Found found = before.empty() ? Found{} : look_for_network(services, owner, before, call);
  if (found.there == There::kAsConfigured && found.id == before) return before;
  if (found.there != There::kNo) services.engine.remove(found.id, call, ObjectKind::kNetwork);
  forget(directory);
  if (services.config.internal && services.engine.info(call).podman)
    throw sdk::Error(ISOGATE_UNAVAILABLE, kNoInternal);
  const std::string name = owner.sandbox_id + "." + random_hex(8);
  own_or_throw(create_state_file(directory, kNetworkFile, name));
  const std::string id = create(services, owner, directory, name, call);
  check_internal(services, owner, id, call);
  own_or_throw(replace_state_file(directory, kNetworkFile, id));
  return id;
}

void remove_network(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  const std::string which = recorded(directory);
  if (which.empty()) return;
  const Found found = look_for_network(services, owner, which, call);
  if (found.there != There::kNo)
    net::unless_gone([&] { services.engine.remove(found.id, call, ObjectKind::kNetwork); });
  forget(directory);
}

}  // namespace isogate::docker
