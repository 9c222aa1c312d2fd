// Checks a JSON document against a JSON Schema (up to draft-07), as a plugin states one for its
// config.
#pragma once

#include <string>

#include "lib/error.h"

namespace isogate {

// ISOGATE_INVALID_ARGUMENT for a document that does not fit, each misfit with its path inside the document
// and what was expected; also for an invalid schema: the message then names the schema. `what` begins the
// message: "config of backend `docker`". Remote references are refused. Any thread.
Result<void> validate_json(const std::string& schema, const std::string& document, const std::string& what);

// Whether the schema itself can be used: compiles it and all its patterns, and applies it to `{}`. The
// document, and each object in it whose keys the schema names, must say what becomes of other keys
// (`additionalProperties`): none is ignored by oversight. Nested alternatives are not looked into. Does not return for a schema that refers to itself
// without end: for a process that may die of it.
Result<void> check_schema(const std::string& schema, const std::string& what);

}  // namespace isogate
