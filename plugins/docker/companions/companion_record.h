// The record of one sandbox's companions: a file in the sandbox's directory, which no tenant reaches. It
// is written before a companion is created (its name, which holds 64 random bits) and again when its id is
// known. As with record.h, a companion is never found by its labels alone.
#pragma once

#include <string>
#include <vector>

namespace isogate::docker {

struct CompanionRecord {
  std::string companion;  // as configured
  std::string name, id;   // of its container; id empty: it was about to be made
  std::string hooked;     // for which of its starts (the Engine's word) post_start has run
};

// `directory`: the sandbox's, borrowed. All throw sdk::Error. No file is no companions; a damaged one an
// error.
std::vector<CompanionRecord> read_companions(int directory);
void write_companions(int directory, const std::vector<CompanionRecord>& records);

}  // namespace isogate::docker
