// isogate completion bash, zsh, fish: scripts that ask `isogate _complete` what may stand at the cursor.
#include <algorithm>
#include <utility>
#include <vector>

#include "gateway/cli/command_tree.h"

namespace isogate::cli {
namespace {

constexpr std::pair<std::string_view, const char*> kScripts[] = {
    {"bash",
     R"(# bash completion for isogate: source it, or put it in /usr/share/bash-completion/completions/isogate
_isogate() {
  local -a offered also=()
  mapfile -t offered < <(isogate _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  case "${offered[0]}" in
    files) also=(-f) ;;
    directories) also=(-d) ;;
    programs) also=(-c -f) ;;
  esac
  offered=("${offered[@]:1}")
  [[ ${#also[@]} == 0 ]] || compopt -o filenames 2> /dev/null
  local current="${COMP_WORDS[COMP_CWORD]}"
  [[ $current == = ]] && current=
  mapfile -t COMPREPLY < <(compgen -W "${offered[*]%%$'\t'*}" "${also[@]}" -- "$current")
}
complete -o bashdefault -F _isogate isogate
)"},
    {"zsh", R"(#compdef isogate
# zsh completion for isogate: put it as _isogate in a directory of $fpath
_isogate() {
  local -a offered=("${(@f)$(isogate _complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  case $offered[1] in
    files) _files && return ;;
    directories) _files -/ && return ;;
  esac
  offered=("${(@)offered[2,-1]/$'\t'/:}")
  _describe isogate offered
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _isogate "$@"; else compdef _isogate isogate; fi
)"},
    {"fish", R"(# fish completion for isogate: put it in ~/.config/fish/completions/isogate.fish
function __isogate_complete
  set -l words (commandline -opc) (commandline -ct)
  command -q isogate; and isogate _complete $words[2..] 2> /dev/null
end
complete -c isogate -f -a '(__isogate_complete)[2..]'
complete -c isogate -n 'contains (__isogate_complete)[1] files directories' -F
)"}};

const OptionInfo* option_named(const CommandInfo& command, std::string_view name) {
  for (const OptionInfo& option : command.options)
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
  return nullptr;
}

const CommandInfo* command_named(const CommandInfo& command, std::string_view name) {
  for (const CommandInfo& inner : command.commands)
    if (inner.name == name) return &inner;
  return nullptr;
}

// The first line says what the shell itself has to find; then words, each with a tab and what it means.
class Offer {
 public:
  void word(const std::string& word, std::string brief = {}) {
    std::replace(brief.begin(), brief.end(), '\n', ' ');
    words_ += word + (brief.empty() ? "" : "\t" + brief) + "\n";
  }
  // `prefix`: of each word, "--name=".
  void value(const OptionInfo& option, const std::string& prefix = {}) {
    for (const std::string& choice : option.choices()) word(prefix + choice);
    if (option.value == "FILE" || option.value == "SRC" || option.value == "DST") also_ = "files";
    if (option.value == "DIR") also_ = "directories";
  }
  [[nodiscard]] std::string text() const { return also_ + "\n" + words_; }

 private:
  std::string also_ = "words", words_;
};

}  // namespace

std::string completion_script(std::string_view shell) {
  for (const auto& [name, script] : kScripts)
    if (name == shell) return script;
  return {};
}

std::string completion_offer(const CommandInfo& app, std::span<const std::string> words) {
  const std::string current = words.empty() ? "" : words.back();
  const CommandInfo* command = &app;
  const OptionInfo* awaits_value = nullptr;
  std::vector<const OptionInfo*> given;
  size_t arguments = 0;
  for (const std::string& word : words.first(std::max<size_t>(words.size(), 1) - 1)) {
    if (word == "--") return "programs\n";
    if (word == "=" && awaits_value != nullptr) continue;  // bash cuts --name=value there
    if (std::exchange(awaits_value, nullptr) != nullptr) continue;
    if (const OptionInfo* option = option_named(*command, word)) {
      given.push_back(option);
      if (!option->value.empty()) awaits_value = option;
    } else if (const CommandInfo* inner = command_named(*command, word)) {
      command = inner;
    } else if (!word.starts_with('-')) {
      ++arguments;
    }
  }
  Offer offer;
  const size_t equals = current.find('=');
  const OptionInfo* joined =
      equals == std::string::npos ? nullptr : option_named(*command, current.substr(0, equals));
  if (awaits_value != nullptr) {
    offer.value(*awaits_value);
  } else if (joined != nullptr) {
    offer.value(*joined, current.substr(0, equals + 1));
  } else if (current.starts_with('-')) {
    for (const OptionInfo& option : command->options)
      if (option.repeats || std::find(given.begin(), given.end(), &option) == given.end())
        for (const std::string& name : option.names) offer.word(name, option.brief);
  } else {
    for (const CommandInfo& inner : command->commands) offer.word(inner.name, inner.brief);
    std::vector<const OptionInfo*> places;
    for (const OptionInfo& option : command->options)
      if (option.names.empty()) places.push_back(&option);
    if (!places.empty()) offer.value(*places[std::min(arguments, places.size() - 1)]);
  }
  return offer.text();
}

}  // namespace isogate::cli
