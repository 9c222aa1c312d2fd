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
  std::string completion_shell;
  std::function<int()> run;  // the command to run, once the command line is parsed
};

// Every command and option. `parsed` is written while `app` parses; it must outlive `app`.
void declare(CLI::App& app, Parsed& parsed);

CommandInfo command_info(const CLI::App* app);

}  // namespace isogate::cli
