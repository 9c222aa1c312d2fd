// The options of the command line, one struct per command. Filled by declare.cc, read by the commands.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/config/load.h"
#include "lib/limits.h"

namespace isogate::cli {

struct ClientOptions {
  std::string url, state_dir, key_file, ca_file, cert_file, cert_key_file;
  bool json = false;
};

struct ConfigOptions {
  std::string file;
  TextPairs flags;                    // setting → text
  std::vector<std::string> backends;  // --backend, in order
  int port = -1;
};

struct ExecOptions {
  ClientOptions client;
  std::string agent, cwd, user, backend, min_isolation, artifact_dir, command;
  std::vector<std::string> env, argv;
  std::optional<double> timeout_sec;
  std::optional<uint64_t> max_output_bytes;
  std::array<std::optional<uint64_t>, kLimitKindCount> limits;  // by row
  bool read_stdin = false, stream = false, lines = false;
  bool background = false, interactive = false, tty = false;

  [[nodiscard]] bool long_lived() const { return background || interactive || tty; }
  [[nodiscard]] bool attaches() const { return !background && (interactive || tty); }
};

struct ShellOptions {
  ExecOptions exec;
  std::string image;  // of a new sandbox; empty: its backend's own
  bool remove = false;
};

// Of the commands about long-lived execs.
struct LongExecOptions {
  ClientOptions client;
  std::string exec_id;
  std::string agent;  // which it must belong to; empty: any
};

struct AttachOptions : LongExecOptions {
  bool read_only = false;
};

struct LogsOptions : LongExecOptions {
  bool follow = false;
};

struct KillOptions : LongExecOptions {
  std::string signal;  // empty: all that it started is killed
};

struct PsOptions {
  ClientOptions client;
  std::string agent;
};

struct FileOptions {
  ClientOptions client;
  std::string agent, path, scope, user;
};

struct ReadOptions : FileOptions {
  std::string output;  // empty or "-": stdout
  uint64_t offset = 0;
  std::optional<uint64_t> limit;
  std::optional<uint32_t> mode;  // of a new file, less the umask
  bool progress = false;
};

struct WriteOptions : FileOptions {
  std::string source;  // empty or "-": stdin
  std::string mode;
  bool append = false, durable = false, replace = false, progress = false;
};

struct CopyOptions {
  ClientOptions client;
  std::string from, to, scope, user;
  bool recursive = false, replace = false;
};

struct ListOptions : FileOptions {
  bool recursive = false, with_details = false;
};

struct WatchOptions : FileOptions {
  bool recursive = false;
};

struct RemoveOptions : FileOptions {
  bool recursive = false;
};

struct SandboxOptions {
  ClientOptions client;
  std::vector<std::string> agents;
  bool purge = false, orphans = false, running = false;
};

struct SandboxCreateOptions {
  ClientOptions client;
  std::string agent, image, backend, min_isolation;
};

struct PortForwardOptions {
  ClientOptions client;
  std::string agent, address = "127.0.0.1";
  std::vector<std::string> ports;  // "[LOCAL:]PORT"
};

struct McpOptions {
  ClientOptions client;
  std::string agent;
  bool stdio = false;
};

struct ProbeOptions {
  ClientOptions client;
  ConfigOptions config;
};

struct PluginOptions {
  std::string file;
  ConfigOptions config;
  bool json = false;
};

struct KeyOptions {
  bool json = false, e2b = false;
};

int run_serve(const ConfigOptions& options);
int run_exec(const ExecOptions& options);
int run_shell(const ShellOptions& options);
int run_attach(const AttachOptions& options);
int run_ps(const PsOptions& options);
int run_logs(const LogsOptions& options);
int run_kill(const KillOptions& options);
int run_read(const ReadOptions& options);
int run_write(const WriteOptions& options);
int run_copy(const CopyOptions& options);
int run_list(const ListOptions& options);
int run_remove(const RemoveOptions& options);
int run_sandbox_create(const SandboxCreateOptions& options);
int run_watch(const WatchOptions& options);
int run_sandbox_list(const SandboxOptions& options);
int run_sandbox_remove(const SandboxOptions& options);
int run_port_forward(const PortForwardOptions& options);
int run_mcp(const McpOptions& options);
int run_probe(const ProbeOptions& options);
int run_plugin_describe(const PluginOptions& options);
int run_plugin_list(const PluginOptions& options);
int run_config_check(const ConfigOptions& options);
int run_config_show(const ConfigOptions& options);
int run_config_schema();
int run_config_docs();
int run_key_new(const KeyOptions& options);
int run_key_hash(const KeyOptions& options);

}  // namespace isogate::cli
