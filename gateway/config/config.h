// The configuration as the processes use it. settings.h is the one place for the meaning of the
// settings, their defaults, environment variables and allowed values; the values here are
// checked. Plain values, copied freely. The supervisor loads it and hands each child its part as
// JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "lib/limits.h"

namespace isogate {

struct KeyConfig {
  std::string name;    // for the log; never the key
  std::string tenant;  // the principal it stands for
  std::string sha256;  // 64 hex digits of the key
};

struct SharedDirConfig {
  std::string prefix, path;
};

struct BackendConfig {
  std::string name;                     // unique; what a request's `backend` names
  std::string plugin;                   // a file name without .so in plugin_dir, or an absolute path
  std::string sha256;                   // pin of the plugin file; empty: none
  std::string run_as = "isogate-host";  // user of a backend host that needs no root, when started by root
  std::vector<std::string> groups;      // supplementary groups of that backend host (an Engine's socket, …)
  std::vector<std::string> users;       // names or numbers a request's `user` may ask for
  std::vector<std::string> images;      // patterns of images that a sandbox may have (images.h)
  bool limits_best_effort = false;
  bool exec_limits_sampled = false;  // those of one exec, where its backend can only sample them
  Limits sandbox_limits;
  uint32_t egress = ISOGATE_EGRESS_UNSET;
  std::string config_json = "{}";  // the plugin's own, validated by its schema
};

struct TlsClientConfig {
  std::string name;    // for the log
  std::string tenant;  // the principal it stands for
  std::string san;     // "DNS:…", "URI:…", "email:…" or "IP:…" of its certificate
};

// Files are read by the supervisor alone.
struct TlsConfig {
  std::string cert, key, client_ca;
  std::string client_auth = "required";  // required, optional; only with client_ca
  std::vector<TlsClientConfig> clients;
  uint32_t handshake_timeout_sec = 10;

  [[nodiscard]] bool enabled() const { return !cert.empty(); }
};

struct CorsConfig {
  std::vector<std::string> origins;
};

struct MetricsConfig {
  std::string listen;  // empty: no listener of its own
};

// What a listener serves.
enum class ListenerKind : uint32_t { kNative, kMetrics, kE2b };

// The listener for E2B's SDKs (docs/e2b.md).
struct E2bConfig {
  std::vector<std::string> listen;                             // empty: there is none
  std::string domain;                                          // the domain that an SDK gets; empty: none
  std::vector<std::pair<std::string, std::string>> templates;  // names of templates, and their images
  uint32_t timeout_sec = 300;                                  // of a sandbox, when a request names none
  uint32_t max_timeout_sec = 86400;
};

struct LogConfig {
  std::string level = "info";  // debug, info, warn, error
  std::string file;            // empty: stderr
  bool access = true;          // a line per request
};

// The part of `limits.max_held_bytes` that any stream holds; with `lines` twice as much.
inline constexpr uint64_t kStreamBytes = 256 * 1024;

struct LimitsConfig {
  uint32_t max_connections = 20000;
  uint32_t max_connections_per_peer = 0;  // 0: three quarters of what there may be
  uint32_t max_requests_per_connection = 10000;
  uint32_t max_header_bytes = 16384;
  uint32_t max_headers = 100;
  uint64_t max_json_bytes = 64u << 20;  // body of a JSON call, and content of a JSON read
  uint64_t max_held_bytes = 1u << 30;   // of bodies and answers, in all
  uint64_t max_spool_bytes = 1u << 30;  // of output on disk, in all
  uint32_t tenant_share_percent = 0;    // 0: load_config() chooses by the tenants
  uint32_t header_timeout_sec = 10;     // from the first byte of a request, total
  uint32_t body_idle_timeout_sec = 30;
  uint32_t idle_timeout_sec = 300;   // a kept-alive connection between requests
  uint32_t write_timeout_sec = 60;   // no byte of an answer accepted in this time
  uint32_t min_bytes_per_sec = 500;  // of a body or an answer, over the time spent waiting for the client
  uint32_t max_execs = 4096;
  uint32_t max_execs_per_sandbox = 256;
  uint32_t exec_queue = 1024;  // waiting beyond max_execs; then 429
  uint32_t exec_queue_timeout_sec = 30;
  uint32_t max_sandboxes = 50000;
  uint32_t max_sandboxes_per_tenant = 10000;  // each costs a user id, a directory, a row
  uint64_t max_disk_mb_per_tenant = 0;        // 0: as much as there is
  uint32_t list_max_entries = 100000;

  // One tenant's share of a total; never 0.
  [[nodiscard]] uint64_t tenant_share(uint64_t of) const {
    return of / 100 * tenant_share_percent + (of % 100 * tenant_share_percent + 99) / 100;
  }
};

struct PortsConfig {
  std::string domain;  // empty: no host names of ports
  uint32_t max_per_sandbox = 128;
};

struct ExecConfig {
  double timeout_sec = 30;  // when a request names none
  double max_timeout_sec = 86400;
  double max_background_sec = 86400;
  double keep_ended_sec = 600;
  uint32_t survive_sec = 300;
  uint64_t max_output_bytes = 131072;
  uint64_t max_max_output_bytes = 16u << 20;
  uint64_t spool_bytes = 64u << 20;                      // of a stream of a long-lived exec
  std::vector<std::pair<std::string, std::string>> env;  // added to every exec
};

struct Config {
  std::vector<std::string> listen = {"127.0.0.1:9090"};  // HOST:PORT, [V6]:PORT, unix:/PATH
  std::string state_dir;
  std::string instance = "default";
  std::string plugin_dir;
  std::string shell = "/bin/bash";
  std::string workdir;  // root of the sandboxes' files; empty: <state_dir>/sandboxes
  std::string toolchain_path;
  std::vector<SharedDirConfig> shared_dirs;
  bool multi_agent = false;  // agent_id must be given
  bool require_remote = false;
  uint32_t min_isolation = ISOGATE_ISOLATION_NONE;
  bool fallback_allowed = false;  // fallback: allowed; a later backend with less isolation may serve
  bool allow_unisolated = false;
  std::string anonymous = "never";  // never, loopback
  std::vector<std::string> hosts;   // names a Host header may carry with anonymous: loopback
  std::vector<KeyConfig> keys;
  TlsConfig tls;
  CorsConfig cors;
  MetricsConfig metrics;
  uint32_t probe_interval_sec = 30;
  uint32_t sandbox_idle_timeout_sec = 1800;  // 0: never
  uint32_t drain_timeout_sec = 30;
  bool keep_on_shutdown = false;  // on_shutdown: keep
  std::string wait_for_sidecar;   // HOST:PORT
  uint32_t wait_for_sidecar_timeout_sec = 60;
  LogConfig log;
  LimitsConfig limits;
  ExecConfig exec;
  PortsConfig ports;
  E2bConfig e2b;
  std::vector<BackendConfig> backends;  // in the operator's order of preference

  // Clients may authenticate over the network; otherwise the gateway creates local.key and stays on this
  // machine.
  [[nodiscard]] bool names_callers() const { return !keys.empty() || !tls.clients.empty(); }
};

}  // namespace isogate
