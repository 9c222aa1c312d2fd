// The operator's configuration of this backend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"
#include "plugins/common/sandbox_disk.h"
#include "plugins/common/strict_limits.h"

namespace isogate::ns {

struct Config : CommonLimits {
  bool debug = false;  // profile: debug
  uint64_t tmp_mb = kStrictLimits.tmp_mb, shm_mb = kStrictLimits.shm_mb;
  DiskPolicy disk;
  uint64_t max_processes = 4096;
  bool inits_ahead = true;
  std::string root;  // a directory with another system than this host's; empty: this host's
};

inline constexpr const char* kConfigSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Configuration of the backend `namespace`",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "profile": {"type": "string", "enum": ["default", "debug"], "default": "default",
      "description": "debug also allows ptrace(2) among the programs of one exec, for gdb, strace and leak detectors: a relaxation"},
    "memory_mb": {"type": "integer", "minimum": 0, "maximum": 16777216, "default": 512,
      "description": "RAM and swap of one sandbox in MiB, at least 32, unless `limits.memory_mb` says otherwise; 0: no limit, a relaxation"},
    "cpus": {"type": "number", "minimum": 0, "maximum": 1000, "default": 1.0,
      "description": "processors of one sandbox, unless `limits.cpu_percent` says otherwise; 0: no limit, a relaxation"},
    "pids": {"type": "integer", "minimum": 0, "maximum": 4194304, "default": 256,
      "description": "processes and threads of one sandbox, at least 32, with an init beside each exec, unless `limits.max_pids` says otherwise; 0: no limit, a relaxation"},
    "tmp_mb": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 64,
      "description": "size of /tmp in MiB, at most half of the memory limit, in which it counts; it is in memory and lasts as long as the sandbox is open"},
    "disk_mb": {"type": "integer", "minimum": 0, "maximum": 1073741824, "default": 1024,
      "description": "MiB of one workspace, at least 8, with a file for each 8 KiB, unless `limits.disk_mb` says otherwise; 0: no limit, a relaxation. Where it is written here and could only be counted, the backend is unavailable, unless limits.mode is best_effort"},
    "workspace_fs": {"type": "string", "enum": ["directory", "loop", "tmpfs"], "default": "directory",
      "description": "where the files of a sandbox are. directory: on the file system of the state directory, limited by a project quota where that has them, else counted; loop: in a sparse ext4 image of its own; tmpfs: in memory, until this host ends"},
    "max_processes": {"type": "integer", "minimum": 16, "maximum": 4194304, "default": 4096,
      "description": "processes and threads of one sandbox, in all its execs together (RLIMIT_NPROC); of all sandboxes together where the gateway was not started by root"},
    "shm_mb": {"type": "integer", "minimum": 1, "maximum": 65536, "default": 64,
      "description": "size of /dev/shm in MiB; each exec finds it empty, and what it leaves there goes with it"},
    "root": {"type": "string", "pattern": "^/.*[^/]$",
      "description": "a directory of this host with the system that programs find (what debootstrap makes, an unpacked image): its /usr, /bin, /lib…, /opt, /srv, /var/lib and /etc, read-only; without it this host's own"},
    "inits_ahead": {"type": "boolean", "default": true,
      "description": "the next exec uses the namespaces of the last one, if that has left nothing in them, or others that are made while the caller reads its answer; false: each exec makes its own, which saves small processes for sandboxes in use and takes longer"}
  }
})";

// Of a document that fits the schema; checks what that cannot express. Throws sdk::Error. Empty text is an
// empty object.
Config parse_config(std::string_view json);

// Each relaxation of the defaults, in words.
std::vector<std::string> relaxations_of(const Config& config);

}  // namespace isogate::ns
