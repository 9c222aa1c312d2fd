// What the operator may write below this backend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/error.h"

namespace isogate::ns {

struct Config {
  bool debug = false;  // profile: debug
  uint64_t max_processes = 4096;
  uint64_t shm_mb = 64;
  bool inits_ahead = true;
  std::string root;  // a directory with another system than this host's; empty: this host's
};

inline constexpr const char* kConfigSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Configuration of the backend `namespace`",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "profile": {
      "type": "string",
      "enum": ["default", "debug"],
      "default": "default",
      "description": "debug also allows ptrace(2) among the programs of one exec, for gdb, strace and leak detectors: a relaxation"
    },
    "max_processes": {
      "type": "integer",
      "minimum": 16,
      "maximum": 4194304,
      "default": 4096,
      "description": "processes and threads of one sandbox, in all its execs together (RLIMIT_NPROC); of all sandboxes together where the gateway was not started by root"
    },
    "shm_mb": {
      "type": "integer",
      "minimum": 1,
      "maximum": 65536,
      "default": 64,
      "description": "size of /dev/shm in MiB; each exec has its own, it goes with it"
    },
    "root": {
      "type": "string",
      "pattern": "^/.*[^/]$",
      "description": "a directory of this host with the system that programs find (what debootstrap makes, an unpacked image): its /usr, /bin, /lib…, /opt, /srv, /var/lib and /etc, read-only; without it this host's own"
    },
    "inits_ahead": {
      "type": "boolean",
      "default": true,
      "description": "make the surroundings of the next exec while the caller reads the answer to the last one; false saves one small process per sandbox in use"
    }
  }
})";

// The same rules as the schema: it is strict by itself. Empty text is an empty object.
Result<Config> parse_config(std::string_view json);

// In words what is weaker than the defaults; empty: nothing.
std::string relaxations_of(const Config& config);

}  // namespace isogate::ns
