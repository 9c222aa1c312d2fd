// JSON request bodies, read strictly: one value, UTF-8, no duplicate key, no unknown field, no NUL in
// a string, depth at most 32, at most 200,000 keys and values. Throws ApiError invalid_request that names the
// field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "isogate/backend.h"

namespace isogate::front {

nlohmann::json parse_body(std::string_view body, std::span<const std::string_view> known_fields);

// Its approximate size in memory, which may be a multiple of its text.
uint64_t kept_bytes(const nlohmann::json& value);

// Absent (or null) is nullopt; another type is an error.
std::optional<std::string> text_field(const nlohmann::json& body, std::string_view name);
std::optional<std::string> take_text_field(nlohmann::json& body, std::string_view name);  // out of the body
std::optional<bool> bool_field(const nlohmann::json& body, std::string_view name);
std::optional<uint64_t> count_field(const nlohmann::json& body, std::string_view name, uint64_t least,
                                    uint64_t most);
// utf-8 (when absent) or base64; another one is an error.
std::string encoding_field(const nlohmann::json& body, std::string_view name);
std::optional<uint32_t> isolation_field(const nlohmann::json& body,
                                        std::string_view name);  // ISOGATE_ISOLATION_*
std::optional<double> number_field(const nlohmann::json& body, std::string_view name);

}  // namespace isogate::front
