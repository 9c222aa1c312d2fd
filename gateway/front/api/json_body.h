// A JSON body of a request, read and checked; a large one on another thread (elsewhere.h). Throws
// ApiError.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "gateway/front/base/elsewhere.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Throws ApiError unless the body is of this media type.
void require_type(const Exchange& exchange, std::string_view type);

// parse_body() of at most `cap` bytes, with the fields of the exchange's route; the result is held in
// exchange.memory.
Task<nlohmann::json> read_json_body(Elsewhere& elsewhere, Exchange& exchange, uint64_t cap);

// The same of a text that was read already.
Task<nlohmann::json> parse_text(Elsewhere& elsewhere, Exchange& exchange, std::string text,
                                std::span<const std::string_view> fields);

// The bytes of a text field `name`, which is base64 if that is its `encoding`.
Task<std::string> decode_field(Elsewhere& elsewhere, Exchange& exchange, std::string_view name,
                               std::string text, std::string_view encoding);

}  // namespace isogate::front
