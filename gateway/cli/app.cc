#include <algorithm>
#include <span>

#include "gateway/cli/cli.h"
#include "gateway/cli/declare.h"
#include "gateway/cli/output.h"
#include "gateway/config/problems.h"
#include "lib/fd.h"

namespace isogate::cli {
namespace {

// The command that was typed, as far as it is one, and the first word that is none.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words, std::string& near) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    CommandInfo here = command_info(at);
    if (here.commands.empty() || word.starts_with('-')) return "";
    std::vector<std::string> names = {"man"};
    for (const CommandInfo& inner : here.commands) names.push_back(inner.name);
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      near = nearest(word, names);
      return word;
    }
    at = at->get_subcommand(word);
  }
  return "";
}

const CLI::App* typed_command(const CLI::App& app, std::string& path) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += (path.empty() ? "" : " ") + at->get_name();
  }
  return at;
}

std::string nearest_option(const CLI::App* command, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command_info(command).options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  for (std::string word : words) {
    word = word.substr(0, word.find('='));
    if (word.starts_with("--") && std::find(names.begin(), names.end(), word) == names.end())
      return nearest(word, names);
  }
  return "";
}

// The first word of `exec` that is neither an option nor the value of one: a program whose own options
// follow.
std::string program_among(const CLI::App* command, const std::vector<std::string>& words) {
  const CommandInfo info = command_info(command);
  for (size_t i = 1; i < words.size(); ++i) {
    if (!words[i].starts_with('-')) return words[i];
    for (const OptionInfo& option : info.options) {
      const bool named = std::find(option.names.begin(), option.names.end(), words[i]) != option.names.end();
      if (named && !option.value.empty()) ++i;
    }
  }
  return "";
}

int usage_error(const std::string& message, const std::string& near, const std::string& command) {
  complain(message);
  if (!near.empty()) advise("Did you mean `" + near + "`?");
  advise("`isogate " + (command.empty() ? "" : command + " ") + "--help` shows what there is.");
  return kUsage;
}

std::string program_needs_mark(const std::string& program) {
  return "put -- before the program: isogate exec [options] -- " + program + " …";
}

// CLI11 would take a program's name for one of our commands: it is split off before.
bool split_program(std::vector<std::string>& words, std::vector<std::string>& program) {
  if (words.empty() || words[0] != "exec") return true;
  auto mark = std::find(words.begin(), words.end(), "--");
  if (mark != words.end()) program.assign(mark + 1, words.end());
  bool empty = mark != words.end() && program.empty();
  words.erase(mark, words.end());
  return !empty;
}

// What exec's options must have in common; empty: all is well.
std::string exec_mistake(const ExecOptions& exec, const std::vector<std::string>& program) {
  if (!exec.argv.empty()) return program_needs_mark(exec.argv[0]);
  if (program.empty() && exec.command.empty()) return "give a program after --, or a command line with -c";
  if (!program.empty() && !exec.command.empty())
    return "give either a program after -- or a command line with -c, not both";
  if (exec.lines && !exec.stream) return "--lines needs --stream";
  if (exec.stream && exec.long_lived()) return "--stream does not go with -d, -i and -t";
  if (exec.attaches() && exec.read_stdin) return "--stdin does not go with -i and -t, which send it too";
  if (exec.attaches() && exec.client.json) return "--json does not go with -i and -t";
  return "";
}

int parse_and_run(CLI::App& app, Parsed& parsed, std::vector<std::string> words) {
  std::vector<std::string> program;
  if (!split_program(words, program)) return usage_error("nothing follows --", "", "exec");
  std::string meant, unknown = unknown_command(app, words, meant);
  if (!unknown.empty()) return usage_error("`" + unknown + "` is no command", meant, "");
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    if (words.empty()) return write_all(2, app.help()).ok() ? kUsage : kFailed;
    std::string path;
    const CLI::App* typed = typed_command(app, path);
    const std::string near = nearest_option(typed, words);
    const std::string named = path == "exec" && near.empty() ? program_among(typed, words) : "";
    if (!named.empty()) return usage_error(program_needs_mark(named), "", path);
    return usage_error(error.what(), near, path);
  }
  if (app.got_subcommand("exec")) {
    if (std::string mistake = exec_mistake(parsed.exec, program); !mistake.empty())
      return usage_error(mistake, "", "exec");
    parsed.exec.argv = program;
  }
  const bool serves = app.got_subcommand("serve");  // as a service that needs none of them
  auto opened = open_standard_descriptors(serves ? ClosedStandard::kNull : ClosedStandard::kError);
  if (!opened.ok()) return complain(opened.error().message), kFailed;
  return parsed.run();
}

}  // namespace

int cli_main(int argc, char** argv) {
  CLI::App app("Runs AI agents' commands in a sandbox chosen by probing, failing closed.", "isogate");
  Parsed parsed;
  declare(app, parsed);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "_complete")
    return print(completion_offer(command_info(&app), std::span(words).subspan(1))), kDone;
  return parse_and_run(app, parsed, words);
}

}  // namespace isogate::cli
