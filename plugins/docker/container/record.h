// The record of one sandbox's container: a file in the sandbox's directory, which no tenant reaches. It is
// written before the container is created (its name, which holds 64 random bits) and again when its id is
// known. So after a crash a container is found by the record, never by a label, which somebody else could
// also write.
#pragma once

#include <sys/stat.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plugins/common/proof.h"

namespace isogate::docker {

struct Record {
  std::string name;            // of the container
  std::string id;              // empty: it was about to be made
  std::string profile;         // profile_digest() of what it was made of
  bool socket = false;         // its runner connects; else it waits for an exec
  std::string started_at;      // the Engine's word, as the next two are; with `proof`
  int64_t pid = 0;             // of its first process
  std::string shape;           // shape_of() it
  std::optional<Proof> proof;  // measured by our runner before the first command of a tenant
};

// The content of a JSON file of a sandbox's directory; nothing: there is no such file. Invalid JSON,
// and more than 64 KiB, is a discarded value. `whose`: "container", for messages. Throws sdk::Error.
std::optional<nlohmann::json> read_json_file(int directory, const char* name, const std::string& whose);

// `directory`: the sandbox's, borrowed. All throw sdk::Error. A damaged record is an error, never an absent
// one.
std::optional<Record> read_record(int directory);
void write_record(int directory, const Record& record);
void remove_record(int directory);
// A file that was written in the last half minute.
bool is_young(const struct stat& info);
// Whether the record is young, so that an Engine may still create its
// container.
bool may_still_be_made(int directory);

}  // namespace isogate::docker
