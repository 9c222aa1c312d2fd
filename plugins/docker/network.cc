#include "plugins/docker/network.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "runner/fd.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

constexpr const char* kMark = "network";  // in the sandbox's directory: the id of the network we made

std::string recorded(int directory) {
  const auto text = read_state_file(directory, kMark);
  if (!text) throw sdk::Error(text.error().status, text.error().message, text.error().os_errno);
  return text->value_or("");
}

// Whether the recorded network is there and ours.
bool is_there(Services& services, const Owner& owner, const std::string& id, const sdk::Call& call) {
  try {
    const Json seen = services.engine.inspect_network(id, call);
    return seen.value("Id", "") == id && carries(seen.value("Labels", Json()), owner);
  } catch (const EngineError& error) {
    if (error.status() == ISOGATE_NOT_FOUND) return false;
    throw;
  }
}

void forget(int directory) {
  if (::unlinkat(directory, kMark, 0) != 0 && errno != ENOENT)
    sdk::fail_with_errno("cannot forget the network of a sandbox", errno);
}

}  // namespace

std::string prepare_network(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  const std::string before = recorded(directory);
  if (!before.empty() && is_there(services, owner, before, call)) return before;
  forget(directory);
  const Json body = {{"Driver", "bridge"},
                     {"CheckDuplicate", true},
                     {"Internal", false},
                     {"Attachable", false},
                     {"Labels", labels_of(owner, "network")},
                     {"Options", {{"com.docker.network.bridge.enable_icc", "false"}}}};
  const std::string id = services.engine.create_network(owner.sandbox_id, body, call);
  const auto made = create_state_file(directory, kMark, id);
  if (made && *made) return id;
  services.engine.remove_network(id, Budget(Budget::kUsual));
  throw sdk::Error(ISOGATE_IO, "cannot record the network of a sandbox");
}

void remove_network(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  const std::string id = recorded(directory);
  if (id.empty()) return;
  if (is_there(services, owner, id, call)) services.engine.remove_network(id, call);
  forget(directory);
}

}  // namespace isogate::docker
