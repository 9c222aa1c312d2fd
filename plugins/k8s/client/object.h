// Objects of the API as received: a value of an unexpected type counts as absent. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/json.h"

namespace isogate::k8s {

// text_at() as one printable line, for messages.
std::string printable_text(const nlohmann::json& object, const char* key);

// The same of metadata.`field`.
std::string metadata_text(const nlohmann::json& object, const char* field);

// metadata.uid. Throws ISOGATE_UNAVAILABLE if there is none: without it, neither the object's identity nor
// its removal can be verified.
std::string uid_of(const nlohmann::json& object);

}  // namespace isogate::k8s
