#include "plugins/docker/container/container_state.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "lib/json.h"

namespace isogate::docker {
namespace {

// A whole number that fits, and 0 where there is none.
template <typename Number>
Number number_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  const bool whole =
      found->is_number_integer() && (!found->is_number_unsigned() ||
                                     found->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  const int64_t value = whole ? found->get<int64_t>() : -1;
  if (!whole || value < std::numeric_limits<Number>::min() || value > std::numeric_limits<Number>::max())
    throw Json::other_error::create(501, "no number that fits", found.operator->());
  return static_cast<Number>(value);
}

}  // namespace

ContainerState state_of(const Json& inspected, const Owner& owner) try {
  const Json& now = inspected.at("State");
  ContainerState state;
  state.exists = true;
  state.paused = now.value("Paused", false);
  state.running = now.at("Running").get<bool>() && !state.paused;
  state.pid = number_at<int>(now, "Pid");
  state.exit_code = number_at<int64_t>(now, "ExitCode");
  state.out_of_memory = now.value("OOMKilled", false);
  state.started_at = now.value("StartedAt", "");
  state.health = text_at(member(now, "Health"), "Status");
  state.shape = shape_of(inspected);
  state.limits = engine_limits(inspected);
  state.id = inspected.at("Id");
  state.name = inspected.value("Name", "");
  if (state.name.starts_with('/')) state.name.erase(0, 1);
  state.ours = carries(inspected.at("Config").at("Labels"), owner);
  return state;
} catch (const Json::exception& error) {
  throw sdk::Error(ISOGATE_UNAVAILABLE, "the Engine described the container of sandbox " + owner.sandbox_id +
                                            " in a way that is not understood: " + error.what());
}

ContainerState look_at(Engine& engine, const Owner& owner, const std::string& which, const Budget& budget) {
  const auto inspected = engine.find(which, budget);
  return inspected ? state_of(*inspected, owner) : ContainerState();
}

std::string how_it_ended(const ContainerState& state) {
  if (!state.exists) return "its container is gone";
  if (state.running || state.paused) return "";
  return with_memory("its container ended with exit code " + std::to_string(state.exit_code),
                     state.out_of_memory);
}

std::string with_memory(const std::string& how, bool out_of_memory) {
  return out_of_memory ? how + "; the Engine saw it out of memory at some time" : how;
}

}  // namespace isogate::docker
