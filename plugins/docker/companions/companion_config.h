// The part of the configuration that is about companions, and what they share with the rest of it: limits.
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

// Throw sdk::Error with the remedy. `whose`: "`docker`", for messages.
void check_companions(const Config& config);
void check_limits(const std::string& whose, uint64_t memory_mb, double cpus, uint64_t pids);

// In words what is weaker than the defaults.
void add_relaxations(std::vector<std::string>& found, const Companion& companion);

// All that containers are made of, for the profile's digest.
nlohmann::json json_of(const Companion& companion);

}  // namespace isogate::docker
