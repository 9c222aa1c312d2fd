// JSON of another program, of which nothing is trusted.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace isogate {

// Not nested deeper than 200, as recursive copies, comparisons or output of more could exhaust the stack.
// Pure; does not check whether it is valid JSON.
bool is_shallow(std::string_view json);

// Discarded (is_discarded()) if it is no JSON, or not shallow.
nlohmann::json parse_shallow(std::string_view json);

// Null if `object` has none, or is no object. Valid as long as `object`.
const nlohmann::json& member(const nlohmann::json& object, const char* key);

// Empty where there is none, or no text.
std::string text_at(const nlohmann::json& object, const char* key);

}  // namespace isogate
