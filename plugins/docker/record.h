// What this backend knows of the container of one sandbox: a file in the sandbox's directory, which no tenant
// reaches. It is written before the container is made (its name, which holds 64 random bits) and again
// when its id is known, so that after a crash a container is found by what was recorded, never by a label
// that somebody else could have written too.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plugins/common/proof.h"

namespace isogate::docker {

struct Record {
  std::string name;            // of the container
  std::string id;              // empty: it was about to be made
  std::string profile;         // profile_digest() of what it was made of
  bool socket = false;         // its runner dials in; else it waits for an exec
  std::string started_at;      // the Engine's word, as the next two are; with `proof`
  int64_t pid = 0;             // of its first process
  std::string shape;           // shape_of() it
  std::optional<Proof> proof;  // measured by our runner before the first command of a tenant
};

// What is in a JSON file of a sandbox's directory; nothing: there is no such file. What is not JSON is
// discarded JSON. `whose`: "container", for messages. Throws sdk::Error.
std::optional<nlohmann::json> read_json_file(int directory, const char* name, const std::string& whose);

// `directory`: the sandbox's, borrowed. All throw sdk::Error. A damaged record is an error, never an absent
// one.
std::optional<Record> read_record(int directory);
void write_record(int directory, const Record& record);
void remove_record(int directory);
// Whether an Engine may be about to make what was recorded less than half a minute ago.
bool may_still_be_made(int directory);

}  // namespace isogate::docker
