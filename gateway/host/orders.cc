#include "gateway/host/orders.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/config/load.h"
#include "isogate/backend.h"
#include "lib/json.h"

namespace isogate {

using nlohmann::json;

Result<HostOrder> parse_start(const std::string& record) {
  HostOrder order;
  std::string name;
  std::string document;
  try {
    const json message = json::parse(is_shallow(record) ? record : "");
    if (message.at("type") != "start") return invalid("the supervisor's first message is not `start`");
    document = message.at("config").dump();
    message.at("backend").get_to(name);
    message.at("generation").get_to(order.generation);
    message.at("sandboxes_dir").get_to(order.places.sandboxes_dir);
    message.at("uids_dir").get_to(order.places.uids_dir);
    message.at("plugin_copy_dir").get_to(order.copy_dir);
    message.at("probe_only").get_to(order.places.probe_only);
    message.at("many_tenants").get_to(order.places.many_tenants);
  } catch (const json::exception& e) {
    return invalid(std::string("the supervisor's start message is malformed: ") + e.what());
  }
  auto config = config_from_json(document);
  if (!config) return config.error();
  order.config = std::move(*config);
  const auto& all = order.config.backends;
  const auto own =
      std::find_if(all.begin(), all.end(), [&](const BackendConfig& b) { return b.name == name; });
  if (own == all.end()) return invalid("the configuration has no backend `" + name + "`");
  order.backend = *own;
  return order;
}

std::optional<CloseOrder> parse_close(const std::string& record) {
  const json message = json::parse(record, nullptr, false);
  const std::string type = text_at(message, "type");
  if (type != "stop" && type != "mode") return std::nullopt;
  const bool stops = text_at(message, "mode") == "stop";
  return CloseOrder{stops ? ISOGATE_CLOSE_STOP : ISOGATE_CLOSE_DETACH, type == "stop"};
}

}  // namespace isogate
