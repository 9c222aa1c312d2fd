// Checks of several backends' configurations, when they are read.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/backend.hpp"

namespace isogate {

// A configuration that cannot be used.
[[noreturn]] inline void refuse(const std::string& why) { throw sdk::Error(ISOGATE_INVALID_ARGUMENT, why); }

// The result of `take` for the JSON object in `text`, which fits the backend's schema; empty text is an empty
// object. Refuses anything else, also if `take` finds an unexpected type. `backend`: for messages.
template <typename Config>
Config config_from(const std::string& backend, std::string_view text, Config (*take)(const nlohmann::json&)) {
  const auto json = nlohmann::json::parse(text.empty() ? "{}" : text, nullptr, false);
  if (!json.is_object()) refuse("the configuration of `" + backend + "` is not a JSON object");
  try {
    return take(json);
  } catch (const nlohmann::json::exception& error) {
    refuse("the configuration of `" + backend + "` does not fit its schema: " + error.what());
  }
}

// Absolute, and without `.`, `..` and empty parts.
bool is_normal(const std::string& path);
// Whether one of the paths is the other, or lies below it.
bool meets(const std::string& one, const std::string& other);

// Refuses a path in a sandbox that is not normal, or overlaps a path that the backend fills itself.
// `what`: "mount target", for messages.
void check_target(const std::string& what, const std::string& target, std::span<const char* const> own);
// Refuses paths if any two overlap.
void check_apart(const std::vector<std::string>& targets);

}  // namespace isogate
