// What the dynamic loader does with a plugin before any of its code runs: where it looks for libraries,
// and which symbols the plugin exports. A strict reader of 64-bit ELF in memory; every offset is
// checked. Pure, any thread. Fuzzed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"

namespace isogate {

struct ElfFacts {
  std::vector<std::string> search_paths;  // entries of RPATH and RUNPATH, as written
  std::vector<std::string> needed;        // libraries it is linked with
  std::vector<std::string> exports;       // defined, visible symbols
  bool loads_more = false;                // AUDIT, DEPAUDIT, FILTER or AUXILIARY
};

Result<ElfFacts> read_elf(std::string_view bytes);

}  // namespace isogate
