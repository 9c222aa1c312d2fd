// The JSON form of a configuration, by the table of settings. Inside gateway/config only.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gateway/config/problems.h"
#include "gateway/config/settings_table.h"

namespace isogate {

using Json = nlohmann::ordered_json;

// Copies every key of `document` into `config`; an absent one keeps its default.
void parse_config(const Json& document, Config& config, Problems& problems);

// The value of the variable or flag `name` in the setting's JSON form; parse_config() reports what does not
// fit. Of backends it may be a list of names.
Json setting_from_text(const Setting& setting, const std::string& text, const std::string& name,
                       Problems& problems);

Json default_value(const Setting& setting);

// "a name of …", "an integer from 1 to 10", "one of `a`, `b`": what the setting takes.
std::string expected_value(const Setting& setting);
std::string range_text(const Setting& setting);  // "1 … 10", or nothing

// YAML (or JSON) to JSON with the place of each key and value. False when there is no usable document,
// and a problem names the reason; duplicate keys are reported as problems. Refused are more than 1 MiB,
// 32 levels or 100,000 values, anything but UTF-8, anchors, aliases, tags, several documents. Plain
// scalars are read by YAML 1.2's core schema: `yes` is a text.
bool read_yaml(const std::string& text, const std::string& name, Json& document, Places& places,
               Problems& problems);

}  // namespace isogate
