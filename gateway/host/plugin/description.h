// The descriptor of a plugin, copied and checked. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/error.h"

namespace isogate {

struct Description {
  std::string path, sha256;  // the file; 64 hex digits
  std::string id, version, summary, vendor, license;
  uint16_t abi_major = 0, abi_minor = 0;
  uint32_t flags = 0, isolation = 0, locality = 0;
  uint64_t capabilities = 0, linux_capabilities = 0;
  bool takes_config = false;          // it has a schema
  std::string config_schema_json;     // empty when it takes no configuration
  std::vector<std::string> absent;    // optional functions of the api it leaves out
  std::vector<std::string> warnings;  // one line each, for its author
};

// One JSON object, indented, with names instead of numbers: for people and their tools.
std::string to_json(const Description& description);

// Over the pipe of a describing child, which is not trusted: strict, every field is checked again.
std::string pack(const Result<Description>& described);
Result<Description> unpack(const std::string& packed);

// The checks for every descriptor, from any source: grammar, lengths, known levels, claims that fit together.
Result<void> check(const Description& description);

// Which claim lacks the evidence that it needs (isogate_evidence in backend.h): "isolation `vm`"; empty: none
// does.
std::string unmeasured(uint32_t isolation, uint64_t capabilities);

}  // namespace isogate
