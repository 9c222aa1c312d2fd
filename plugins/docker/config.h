// The operator's configuration of this backend, with strict defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/common/sandbox_disk.h"
#include "plugins/common/strict_limits.h"
#include "plugins/docker/client/engine_address.h"

namespace isogate::docker {

enum class RunnerTransport { kAuto, kSocket, kStream, kExec };
enum class Place { kAuto, kBind, kVolume };

struct Mount {
  std::string source;  // absolute, on the Engine's machine
  std::string target;  // absolute, in the container
  bool read_only = true;
};

// A tree or file of the gateway's host that is copied into each container before it starts (copies.h).
struct Copy {
  std::string source;                // absolute, on the gateway's host
  std::string target;                // absolute, in the container
  std::vector<std::string> exclude;  // exclude.h
  bool writable = false;             // by the sandbox's user; false: root's, read-only
};

struct Healthcheck {
  std::vector<std::string> test;  // argv, in the companion
  uint64_t interval_sec = 5, timeout_sec = 5, retries = 3, start_period_sec = 0;
};

// Runs in the sandbox's own container, as its user, once the companion is healthy.
struct PostStart {
  std::vector<std::string> command;  // argv
  uint64_t timeout_sec = 60;
};

// A further container on the sandbox's network (companions.h).
struct Companion : CommonLimits {
  std::string name;  // in the network's DNS
  std::string image;
  std::vector<std::string> command;  // empty: the image's own
  std::vector<std::pair<std::string, std::string>> env;
  std::string user;  // empty: the sandbox's
  bool read_only = true;
  std::vector<std::string> tmpfs;  // in addition to /tmp
  std::optional<Healthcheck> healthcheck;
  std::optional<PostStart> post_start;
};

struct Config : CommonLimits {
  std::string host;                              // empty: as the docker command line finds it
  std::optional<TlsFiles> tls;                   // for tcp://
  std::string image = "isogate-sandbox:latest";  // on the Engine already
  std::string platform;                          // empty: the image's
  std::string runtime;                           // empty: the Engine's own
  uint64_t tmp_mb = kStrictLimits.tmp_mb, shm_mb = kStrictLimits.shm_mb;
  DiskPolicy disk;
  bool read_only = true;
  bool own_seccomp = true;  // seccomp.h; false: the Engine's own profile
  bool network = false;     // false: none at all; true: a network of its own for each sandbox
  bool internal = false;    // that network has no way out
  RunnerTransport transport = RunnerTransport::kAuto;
  Place workspace = Place::kAuto;
  std::string runner;  // empty: beside the gateway's own program
  std::vector<std::pair<std::string, std::string>> env;
  std::vector<Mount> mounts;
  unsigned warm_pool = 0;  // sandboxes created in advance
  std::vector<Copy> copies;
  uint64_t copies_max_mb = 1024, copies_max_entries = 100'000;  // of all copies of one container
  std::vector<Companion> companions;
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
    "platform": {"type": "string", "pattern": "^linux/[a-z0-9]+(/v[0-9]+)?$",
      "description": "of the image, as linux/arm64: refused where the image is of another one; left out: whatever the image is"},
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
    "disk_mb": {"type": "integer", "minimum": 0, "maximum": 1073741824, "default": 1024,
      "description": "MiB of one workspace, at least 8, with a file for each 8 KiB, unless `limits.disk_mb` says otherwise; 0: no limit, a relaxation. Where it is written here and could only be counted, the backend is unavailable, unless limits.mode is best_effort"},
    "workspace_fs": {"type": "string", "enum": ["directory", "loop", "tmpfs"], "default": "directory",
      "description": "where workspaces lie. directory: the file system of the state directory, bounded where that has project quotas; loop: an ext4 of its own for each, in a sparse file; tmpfs: memory, lost when this machine stops. loop and tmpfs need root, disk_mb and an Engine that sees this host's directories"},
    "read_only": {"type": "boolean", "default": true,
      "description": "whether the root file system is read-only; false: writable, and lost with the container: a relaxation"},
    "seccomp_profile": {"type": "string", "enum": ["isogate", "engine"], "default": "isogate",
      "description": "isogate: the system calls that the backend namespace serves, and no others; engine: the Engine's own profile, a relaxation"},
    "network": {"type": "string", "enum": ["none", "internal", "dedicated"], "default": "none",
      "description": "none: no network but loopback; internal: a bridge network of its own for each sandbox, without a way out and without the Engine's machine on it, for companions; dedicated: one with a way out: a relaxation"},
    "transport": {"type": "string", "enum": ["auto", "socket", "stream", "exec"], "default": "auto",
      "description": "how the runner in the container is reached: over a Unix socket in a mounted directory, over one exec of the Engine that stays, over an exec for each call; auto: the first of these that works"},
    "workspace": {"type": "string", "enum": ["auto", "bind", "volume"], "default": "auto",
      "description": "bind: a directory of this host; volume: one of the Engine's, where that is on another machine"},
    "runner": {"type": "string", "pattern": "^/", "description": "the program isogate-runner on this host; left out: the one that came with the gateway"},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^[^=]+$"},
      "description": "environment of every program, below that of a request"},
    "warm_pool": {"type": "integer", "minimum": 0, "maximum": 256, "default": 0,
      "description": "how many sandboxes are kept ready for agents that have none yet: containers that run, each with an empty workspace of its own"},
    "mounts": {"type": "array", "maxItems": 64,
      "description": "directories and files of the Engine's machine, in every sandbox of this backend",
      "items": {"type": "object", "additionalProperties": false, "required": ["source", "target"],
        "properties": {
          "source": {"type": "string", "pattern": "^/", "description": "absolute path; no symlink"},
          "target": {"type": "string", "pattern": "^/", "description": "absolute path in the container"},
          "read_only": {"type": "boolean", "default": true, "description": "false: programs may write there, a relaxation"}}}},
    "copies": {"type": "array", "maxItems": 64,
      "description": "directories and files of the gateway's host, copied into every container before it starts",
      "items": {"type": "object", "additionalProperties": false, "required": ["source", "target"],
        "properties": {
          "source": {"type": "string", "pattern": "^/", "description": "absolute path of a directory or file; no symlink, nor below one"},
          "target": {"type": "string", "pattern": "^/", "description": "absolute path in the container: of the directory, or of the file"},
          "exclude": {"type": "array", "maxItems": 256, "items": {"type": "string", "minLength": 1, "maxLength": 1024},
            "description": "what of a directory stays away: `*.pyc` at any depth, `docs/*.md` from its top, `build/**` all that is in it, `tmp/` directories alone"},
          "writable": {"type": "boolean", "default": false,
            "description": "false: root's and read-only; true: it belongs to the sandbox's user"}}}},
    "copies_max_mb": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 1024,
      "description": "MiB in all files that are copied into one container; more is refused"},
    "copies_max_entries": {"type": "integer", "minimum": 1, "maximum": 10000000, "default": 100000,
      "description": "files, directories and links that are copied into one container; more is refused"},
    "companions": {"type": "array", "maxItems": 8,
      "description": "further containers on each sandbox's own network, reached by their names; need network: internal or dedicated",
      "items": {"type": "object", "additionalProperties": false, "required": ["name", "image"],
        "properties": {
          "name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "description": "its name in the network"},
          "image": {"type": "string", "minLength": 1, "maxLength": 512, "description": "on the Engine already"},
          "command": {"type": "array", "maxItems": 256, "items": {"type": "string"}, "description": "left out: the image's own"},
          "env": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^[^=]+$"},
            "description": "beside the image's own"},
          "user": {"type": "string", "pattern": "^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?$",
            "description": "user[:group], a relaxation; left out: the sandbox's uid"},
          "memory_mb": {"type": "integer", "minimum": 0, "maximum": 16777216, "default": 512, "description": "as above, for it alone"},
          "cpus": {"type": "number", "minimum": 0, "maximum": 4096, "default": 1.0, "description": "as above, for it alone"},
          "pids": {"type": "integer", "minimum": 0, "maximum": 4194304, "default": 256, "description": "as above, for it alone"},
          "read_only": {"type": "boolean", "default": true, "description": "false: its root file system is writable, a relaxation"},
          "tmpfs": {"type": "array", "maxItems": 16, "items": {"type": "string", "pattern": "^/."},
            "description": "directories in memory, writable, each of at most tmp_mb; /tmp always is one"},
          "healthcheck": {"type": "object", "additionalProperties": false, "required": ["test"],
            "properties": {
              "test": {"type": "array", "minItems": 1, "maxItems": 256, "items": {"type": "string"}, "description": "argv of a program in it; exit code 0: healthy"},
              "interval_sec": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 5, "description": "from one test to the next"},
              "timeout_sec": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 5, "description": "of one test"},
              "retries": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 3, "description": "failures in a row that make it unhealthy"},
              "start_period_sec": {"type": "integer", "minimum": 0, "maximum": 3600, "default": 0, "description": "in which failures do not count"}},
            "description": "left out: none, the image's is off, too"},
          "post_start": {"type": "object", "additionalProperties": false, "required": ["command"],
            "properties": {
              "command": {"type": "array", "minItems": 1, "maxItems": 256, "items": {"type": "string"}, "description": "argv, run in the sandbox's container as its user"},
              "timeout_sec": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 60, "description": "then it is killed"}},
            "description": "once it is healthy, after each of its starts; needs healthcheck"}}}}
  }
})";

// Of a document that fits the schema; checks what that cannot express. Throws sdk::Error. Empty text is an
// empty object.
Config parse_config(std::string_view json);

// Throws sdk::Error where a mount or a copy meets the place of a shared directory, /mnt/<prefix>.
void check_shared(const Config& config, const std::string& prefix);

// Each relaxation of the defaults, in words.
std::vector<std::string> relaxations_of(const Config& config);

}  // namespace isogate::docker
