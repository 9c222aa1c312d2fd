// The commands and their options as data: what completions and the man page are made from.
#pragma once

#include <string>
#include <vector>

namespace isogate::cli {

struct OptionInfo {
  std::vector<std::string> names;  // "-c", "--command"; empty: a positional
  std::string value;               // "SEC", "FILE", "a|b|c", of a positional its name; empty: a flag
  std::string brief;
  bool repeats = false;
  [[nodiscard]] std::vector<std::string> choices() const;  // of "a|b|c"; else empty
};

struct CommandInfo {
  std::string name, brief;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

std::string completion_for_bash(const CommandInfo& app);
std::string completion_for_zsh(const CommandInfo& app);
std::string completion_for_fish(const CommandInfo& app);
std::string man_page(const CommandInfo& app);  // roff, man(7)

}  // namespace isogate::cli
