// A JSON body of a request, read and checked; what is large is worked on elsewhere (elsewhere.h). Throws
// ApiError.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "gateway/front/app.h"
#include "gateway/front/exchange.h"

namespace isogate::front {

// parse_body() of at most `cap` bytes, with the fields of the exchange's route; what it keeps is held in
// exchange.memory.
Task<nlohmann::json> read_json_body(App& app, Exchange& exchange, uint64_t cap);

// The bytes of a text field `name`, which is base64 where `encoding` says so.
Task<std::string> decode_field(App& app, Exchange& exchange, std::string_view name, std::string text,
                               std::string_view encoding);

}  // namespace isogate::front
