// Every setting, once. Parsing, checking, environment variables, command-line help, the JSON Schema
// and docs/configuration.md all come from this list; so a setting that is not in it does not exist.
// Any thread.
#pragma once

#include <string>

namespace isogate {

std::string config_json_schema();    // draft-07; published as configs/isogate.schema.json
std::string config_docs_markdown();  // published as docs/configuration.md

}  // namespace isogate
