// Every setting, once. Parsing, checking, environment variables, command-line help, the JSON Schema
// and docs/configuration.md all come from this list; so a setting that is not in it does not exist.
// Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isogate {

struct SettingInfo {
  std::string path;      // "limits.max_execs"; of list items "backends[].name"
  std::string type;      // "boolean", "integer", "number", "string", "list", "object", "a | b | c"
  std::string fallback;  // the default, as JSON, or in words if it is computed at start
  bool fallback_in_words = false;
  std::string range;           // "1 … 86400"; empty: none
  std::string environment;     // "ISOGATE_LIMITS_MAX_EXECS"; empty: none (items of lists)
  std::string historical;      // an older name of the same variable, "SHARED_DIRS"; empty: none
  std::string flag;            // "--limits-max-execs"; empty: none (items of lists)
  std::string brief;           // one line
  std::string details;         // the rest; may be empty
  bool needs_restart = false;  // keep_start_settings() in load.h
};

const std::vector<SettingInfo>& settings();  // in the order of the documentation
std::string config_json_schema();            // draft-07; published as configs/isogate.schema.json
std::string config_docs_markdown();          // published as docs/configuration.md

}  // namespace isogate
