// What this backend knows of the container of one sandbox: a file in the sandbox's directory, which no tenant
// reaches. It is written before the container is made (its name, which holds 64 random bits) and again
// when its id is known, so that after a crash a container is found by what was recorded, never by a label
// that somebody else could have written too.
#pragma once

#include <optional>
#include <string>

#include "isogate/backend.h"

namespace isogate::docker {

struct Record {
  std::string name;             // of the container
  std::string id;               // empty: it was about to be made
  std::string profile;          // profile_digest() of what it was made of
  bool socket = false;          // its runner dials in; else it waits for an exec
  std::string started_at;       // the Engine's word, as the next two are; with `evidence`
  int64_t pid = 0;              // of its first process
  std::string shape;            // shape_of() it
  std::string gateway_address;  // what the measurement tried to reach
  uint32_t gateway_port = 0;
  std::string gateway_listeners;
  std::optional<isogate_evidence> evidence;  // measured by our runner before the first command of a tenant
};

// `directory`: the sandbox's, borrowed. All throw sdk::Error. A damaged record is an error, never an absent
// one.
std::optional<Record> read_record(int directory);
void write_record(int directory, const Record& record);
void remove_record(int directory);
// Whether an Engine may be about to make what was recorded less than half a minute ago.
bool may_still_be_made(int directory);

}  // namespace isogate::docker
