// The part of the configuration for companions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plugins/docker/config.h"

namespace isogate::docker {

// Whose limits they are, for messages.
inline constexpr const char* kEngineMachine = "the Engine's machine";

// Throws nlohmann::json::exception for what does not fit the schema.
Companion companion_of(const nlohmann::json& json);

// Throws sdk::Error with the remedy.
void check_companions(const Config& config);

// How it is weaker than the defaults, in words.
void add_relaxations(std::vector<std::string>& found, const Companion& companion);

// All settings of the containers, for the profile's digest.
nlohmann::json json_of(const Companion& companion);

}  // namespace isogate::docker
