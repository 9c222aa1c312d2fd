// The commands and their options as data: what completions and the man page are made from.
#pragma once

#include <span>
#include <string>
#include <string_view>
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

std::string completion_script(std::string_view shell);  // "bash", "zsh" or "fish"
// The answer to `isogate _complete`, which these scripts run: what may stand in place of the last of `words`,
// in the light of those before it. The first line says what the shell itself adds: files, directories,
// programs or, for nothing, words. Each further line is a word, with its meaning behind a tab.
std::string completion_offer(const CommandInfo& app, std::span<const std::string> words);
std::string man_page(const CommandInfo& app);  // roff, man(7)

}  // namespace isogate::cli
