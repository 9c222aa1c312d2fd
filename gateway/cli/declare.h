// The command line as CLI11 knows it: filled by declare(), read by app.cc. CLI11 stays in these two files.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "gateway/cli/command_tree.h"
#include "gateway/cli/options.h"

namespace isogate::cli {

struct Parsed {
  ExecOptions exec;
  ShellOptions shell;
  AttachOptions attach;
  PsOptions ps;
  LogsOptions logs;
  KillOptions kill;
  ReadOptions read;
  WriteOptions write;
  CopyOptions copy;
  ListOptions list;
  RemoveOptions remove;
  WatchOptions watch;
  SandboxOptions sandbox;
  SandboxCreateOptions sandbox_create;
  PortForwardOptions port_forward;
  McpOptions mcp;
  ProbeOptions probe;
  PluginOptions plugin;
  ConfigOptions serve, config;
  bool key_json = false, key_e2b = false;
  std::string completion_shell;
  std::function<int()> run;  // the command to run, once the command line is parsed
};

// Every command and option. `parsed` is written while `app` parses; it must outlive `app`.
void declare(CLI::App& app, Parsed& parsed);

CommandInfo command_info(const CLI::App* app);

}  // namespace isogate::cli
