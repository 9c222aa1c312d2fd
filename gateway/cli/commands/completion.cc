// isogate completion bash, zsh, fish: one walk over the command tree, three spellings.
#include <functional>

#include "gateway/cli/command_tree.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Visit = std::function<void(const CommandInfo& command, const std::string& path)>;

// Every command; `path` is "", "exec", "config check", …
void walk(const CommandInfo& command, const std::string& path, const Visit& visit) {
  visit(command, path);
  for (const CommandInfo& inner : command.commands)
    walk(inner, path.empty() ? inner.name : path + " " + inner.name, visit);
}

std::string command_names(const CommandInfo& command) {
  return join(command.commands, " ", &CommandInfo::name);
}

std::string option_names(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return join(names, " ");
}

bool takes_file(const OptionInfo& option) {
  return option.value == "FILE" || option.value == "SRC" || option.value == "DST";
}
bool takes_dir(const OptionInfo& option) { return option.value == "DIR"; }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string one_line(std::string text) { return replaced(std::move(text), "\n", " "); }

// ---- bash

std::string bash_value(const OptionInfo& option) {
  if (!option.choices().empty())
    return "COMPREPLY=($(compgen -W '" + join(option.choices(), " ") + "' -- \"$current\"))";
  if (takes_file(option)) return "COMPREPLY=($(compgen -f -- \"$current\"))";
  if (takes_dir(option)) return "COMPREPLY=($(compgen -d -- \"$current\"))";
  return "COMPREPLY=()";
}

std::string bash_values(const CommandInfo& app) {
  std::string text;
  walk(app, "", [&](const CommandInfo& command, const std::string& path) {
    for (const OptionInfo& option : command.options) {
      if (option.names.empty() || option.value.empty()) continue;
      for (const std::string& name : option.names)
        text += "    '" + path + " " + name + "') " + bash_value(option) + "; return ;;\n";
    }
  });
  return text;
}

std::string bash_words(const CommandInfo& app) {
  std::string text;
  walk(app, "", [&](const CommandInfo& command, const std::string& path) {
    std::string choices, files;
    for (const OptionInfo& option : command.options) {
      if (!option.names.empty()) continue;
      choices += join(option.choices(), " ");
      if (takes_file(option)) files = " -f";
      if (takes_dir(option)) files = " -d";
    }
    std::string plain = command_names(command) + choices;
    text += "    '" + path + "') options='" + option_names(command) + "'; plain='" + plain + "'; files='" +
            files + "' ;;\n";
  });
  return text;
}

std::string bash_commands(const CommandInfo& app) {
  std::string paths;
  walk(app, "", [&](const CommandInfo&, const std::string& path) {
    if (!path.empty()) paths += (paths.empty() ? "'" : "|'") + path + "'";
  });
  return paths;
}

// ---- zsh

std::string zsh_text(const std::string& text) {
  std::string safe = replaced(replaced(one_line(text), "'", "'\\''"), ":", "\\:");
  return replaced(replaced(safe, "[", "\\["), "]", "\\]");
}

std::string zsh_action(const OptionInfo& option) {
  if (!option.choices().empty()) return "(" + join(option.choices(), " ") + ")";
  if (takes_file(option)) return "_files";
  if (takes_dir(option)) return "_files -/";
  return "()";  // no message, which would keep zsh from inserting an option
}

std::string zsh_argument(const OptionInfo& option) {
  std::string value =
      option.value.empty() ? "" : ":" + zsh_text(replaced(option.value, "|", " ")) + ":" + zsh_action(option);
  if (option.names.empty())
    return "    '" + std::string(option.repeats ? "*" : "") + (option.repeats ? "" : ":") +
           (option.repeats ? value : value.substr(1)) + "' \\\n";
  std::string text;
  for (const std::string& name : option.names)
    text += "    '" + std::string(option.repeats ? "*" : "") + name + "[" + zsh_text(option.brief) + "]" +
            value + "' \\\n";
  return text;
}

std::string zsh_function(const std::string& path) {
  return "_isogate" + (path.empty() ? "" : "_" + replaced(path, " ", "_"));
}

std::string zsh_commands(const CommandInfo& command, const std::string& path) {
  std::string text = "  local -a commands=(\n";
  for (const CommandInfo& inner : command.commands)
    text += "    '" + inner.name + ":" + zsh_text(inner.brief) + "'\n";
  text += "  )\n  local state line\n  _arguments -C -S \\\n";
  for (const OptionInfo& option : command.options) text += zsh_argument(option);
  text +=
      "    '1: :->command' '*:: :->rest'\n  case $state in\n    command) _describe command commands ;;\n    "
      "rest) case $line[1] in\n";
  for (const CommandInfo& inner : command.commands)
    text += "      " + inner.name + ") " + zsh_function(path.empty() ? inner.name : path + " " + inner.name) +
            " ;;\n";
  return text + "    esac ;;\n  esac\n";
}

// ---- fish

std::string fish_text(const std::string& text) {
  return replaced(replaced(one_line(text), "\\", "\\\\"), "'", "\\'");
}

std::string fish_option(const OptionInfo& option, const std::string& when) {
  std::string text = "complete -c isogate -n '" + when + "'";
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty() && !option.names.empty())
    text += takes_file(option) || takes_dir(option) ? " -r -F" : " -x";
  if (option.names.empty() && takes_file(option)) text += " -F";
  if (!option.choices().empty()) text += " -a '" + join(option.choices(), " ") + "'";
  if (!option.brief.empty()) text += " -d '" + fish_text(option.brief) + "'";
  return text + "\n";
}

std::string fish_lines(const CommandInfo& app) {
  std::string text;
  walk(app, "", [&](const CommandInfo& command, const std::string& path) {
    std::string when = "__isogate_at \"" + path + "\"";
    for (const CommandInfo& inner : command.commands)
      text +=
          "complete -c isogate -n '" + when + "' -a " + inner.name + " -d '" + fish_text(inner.brief) + "'\n";
    for (const OptionInfo& option : command.options)
      if (!option.names.empty() || takes_file(option) || !option.choices().empty())
        text += fish_option(option, when);
  });
  return text;
}

}  // namespace

std::string completion_for_bash(const CommandInfo& app) {
  std::string text =
      R"(# bash completion for isogate: source it, or put it in /usr/share/bash-completion/completions/isogate
_isogate() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
  local path='' word next i options='' plain='' files=''
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == -- ]] && { COMPREPLY=($(compgen -c -f -- "$current")); return; }
    next="${path:+$path }$word"
    case "$next" in
      @commands@) path="$next" ;;
    esac
  done
  case "$path $previous" in
@values@  esac
  case "$path" in
@words@  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$plain" $files -- "$current"))
  fi
}
complete -o filenames -o bashdefault -F _isogate isogate
)";
  text = replaced(text, "@commands@", bash_commands(app));
  text = replaced(text, "@values@", bash_values(app));
  return replaced(text, "@words@", bash_words(app));
}

std::string completion_for_zsh(const CommandInfo& app) {
  std::string text =
      "#compdef isogate\n# zsh completion for isogate: put it as _isogate in a directory of $fpath\n\n";
  walk(app, "", [&](const CommandInfo& command, const std::string& path) {
    text += zsh_function(path) + "() {\n";
    if (!command.commands.empty()) {
      text += zsh_commands(command, path);
    } else {
      text += "  _arguments -S \\\n";
      for (const OptionInfo& option : command.options) text += zsh_argument(option);
      text += "    && return\n";
    }
    text += "}\n\n";
  });
  return text +
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _isogate \"$@\"; else compdef _isogate "
         "isogate; fi\n";
}

std::string completion_for_fish(const CommandInfo& app) {
  std::string paths;
  walk(app, "", [&](const CommandInfo&, const std::string& path) {
    if (!path.empty()) paths += " '" + path + "'";
  });
  return "# fish completion for isogate: put it in ~/.config/fish/completions/isogate.fish\n"
         "function __isogate_at --description 'true if the command typed so far is $argv[1]'\n"
         "  set -l commands" +
         paths +
         "\n"
         "  set -l path\n"
         "  set -l words (commandline -opc)\n"
         "  for word in $words[2..-1]\n"
         "    test \"$word\" = --; and return 1\n"
         "    set -l next (string trim -- \"$path $word\")\n"
         "    contains -- \"$next\" $commands; and set path \"$next\"\n"
         "  end\n"
         "  test \"$path\" = \"$argv[1]\"\n"
         "end\n"
         "complete -c isogate -f\n" +
         fish_lines(app);
}

}  // namespace isogate::cli
