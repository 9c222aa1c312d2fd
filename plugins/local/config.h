// What the operator may write below this backend.
#pragma once

#include <string_view>

#include "runner/error.h"

namespace isogate::local {

struct Config {
  bool use_cgroups = true;  // "cgroups": "auto" (where they can be had) or "never"
};

inline constexpr const char* kConfigSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Configuration of the backend `local`",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "cgroups": {
      "type": "string",
      "enum": ["auto", "never"],
      "default": "auto",
      "description": "auto: limits and killing by control groups where this host lets the gateway have them; never: no limits, process trees are killed by a supervisor"
    }
  }
})";

// The same rules as the schema: it is strict by itself. Empty text is an empty object.
Result<Config> parse_config(std::string_view json);

}  // namespace isogate::local
