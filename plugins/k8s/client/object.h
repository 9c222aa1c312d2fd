// Objects of the API as they come: what has another type than it should is not there. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace isogate::k8s {

// Null where `object` has none, or is no object. As long as `object` is.
const nlohmann::json& member(const nlohmann::json& object, const char* key);

// Empty where there is none, or no text.
std::string text_at(const nlohmann::json& object, const char* key);

// The same as one printable line, for messages.
std::string printable_text(const nlohmann::json& object, const char* key);

// metadata.`field`, likewise.
std::string metadata_text(const nlohmann::json& object, const char* field);

// metadata.uid. Throws ISOGATE_UNAVAILABLE where there is none: nobody can tell then whether this is what was
// asked for, nor that it is gone.
std::string uid_of(const nlohmann::json& object);

}  // namespace isogate::k8s
