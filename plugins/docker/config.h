// What the operator may write below this backend, and the strict defaults for what is left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isogate::docker {

enum class RunnerTransport { kAuto, kSocket, kStream, kExec };
enum class Place { kAuto, kBind, kVolume };

struct Mount {
  std::string source;  // absolute, on the Engine's machine
  std::string target;  // absolute, in the container
  bool read_only = true;
};

struct Config {
  std::string host;                              // empty: as the docker command line finds it
  std::string ca, certificate, key;              // files, for tcp://
  std::string image = "isogate-sandbox:latest";  // on the Engine already
  std::string runtime;                           // empty: the Engine's own
  uint64_t memory_mb = 512;                      // 0: no cap; likewise below
  double cpus = 1.0;
  uint64_t pids = 256;
  uint64_t tmp_mb = 64, shm_mb = 64;
  bool read_only = true;
  bool network = false;  // false: none at all; true: a network of its own for each sandbox
  RunnerTransport transport = RunnerTransport::kAuto;
  Place workspace = Place::kAuto;
  std::string runner;  // empty: beside the gateway's own program
  std::vector<std::pair<std::string, std::string>> env;
  std::vector<Mount> mounts;
  unsigned warm_pool = 0;  // sandboxes made ahead
};

inline constexpr const char* kConfigSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "title": "Configuration of the backend `docker`",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "host": {"type": "string", "pattern": "^(unix:///|tcp://).+",
      "description": "where the Engine is; left out: DOCKER_HOST, the current docker context, the usual sockets"},
    "tls": {"type": "object", "additionalProperties": false, "required": ["ca", "certificate", "key"],
      "properties": {
        "ca": {"type": "string", "pattern": "^/", "description": "file with the certificate that signed the Engine's"},
        "certificate": {"type": "string", "pattern": "^/", "description": "file with this client's certificate"},
        "key": {"type": "string", "pattern": "^/", "description": "file with its key"}},
      "description": "for tcp://"},
    "image": {"type": "string", "minLength": 1, "maxLength": 512, "default": "isogate-sandbox:latest",
      "description": "what containers are made of; it has to be on the Engine already, nothing is pulled"},
    "runtime": {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$",
      "description": "as the Engine knows it: runc, runsc, kata, …; left out: its default"},
    "memory_mb": {"type": "integer", "minimum": 0, "maximum": 16777216, "default": 512,
      "description": "RAM and swap of one sandbox in MiB, at least 32; 0: no cap, a relaxation"},
    "cpus": {"type": "number", "minimum": 0, "maximum": 4096, "default": 1.0,
      "description": "processors of one sandbox; 0: no cap, a relaxation"},
    "pids": {"type": "integer", "minimum": 0, "maximum": 4194304, "default": 256,
      "description": "processes and threads of one sandbox, at least 32, with about three of the runner for each exec; 0: no cap, a relaxation"},
    "tmp_mb": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 64,
      "description": "size of /tmp in MiB"},
    "shm_mb": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 64,
      "description": "size of /dev/shm in MiB"},
    "read_only": {"type": "boolean", "default": true,
      "description": "whether the root file system is read-only; false: writable, and lost with the container: a relaxation"},
    "network": {"type": "string", "enum": ["none", "dedicated"], "default": "none",
      "description": "none: no network but loopback; dedicated: a bridge network of its own for each sandbox, with a way out: a relaxation"},
    "transport": {"type": "string", "enum": ["auto", "socket", "stream", "exec"], "default": "auto",
      "description": "how the runner in the container is reached: over a Unix socket in a mounted directory, over one exec of the Engine that stays, over an exec for each call; auto: the first of these that works"},
    "workspace": {"type": "string", "enum": ["auto", "bind", "volume"], "default": "auto",
      "description": "bind: a directory of this host; volume: one of the Engine's, where that is on another machine"},
    "runner": {"type": "string", "pattern": "^/", "description": "the program isogate-runner on this host; left out: the one that came with the gateway"},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^[^=]+$"},
      "description": "environment of every program, below what a request says"},
    "warm_pool": {"type": "integer", "minimum": 0, "maximum": 256, "default": 0,
      "description": "how many sandboxes are kept ready for agents that have none yet: containers that run, each with an empty workspace of its own"},
    "mounts": {"type": "array", "maxItems": 64,
      "description": "directories and files of the Engine's machine, in every sandbox of this backend",
      "items": {"type": "object", "additionalProperties": false, "required": ["source", "target"],
        "properties": {
          "source": {"type": "string", "pattern": "^/", "description": "absolute path; no symlink"},
          "target": {"type": "string", "pattern": "^/", "description": "absolute path in the container"},
          "read_only": {"type": "boolean", "default": true, "description": "false: programs may write there, a relaxation"}}}}
  }
})";

// The same rules as the schema and the rest that it cannot say. Throws sdk::Error. Empty text is an empty
// object.
Config parse_config(std::string_view json);

// In words, one by one, what is weaker than the defaults.
std::vector<std::string> relaxations_of(const Config& config);

}  // namespace isogate::docker
