#include "gateway/cli/declare.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "gateway/config/settings_table.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

// "a|b|c" names the choices, in the help and in completions.
CLI::Option* choice(CLI::Option* option, const std::string& choices) {
  OptionInfo info;
  info.value = choices;
  option->type_name(choices);
  option->check(CLI::Validator(
      [all = info.choices(), choices](std::string& text) {
        for (const std::string& one : all)
          if (text == one) return std::string();
        return "`" + text + "` is not one of " + choices;
      },
      std::string()));
  return option;
}

// CLI11 itself takes -1 for a large unsigned number, and nan for a number above 0.
CLI::Option* count(CLI::Option* option, const char* unit, uint64_t least) {
  auto check = [least](const std::string& text) {
    const auto value = number_in<uint64_t>(text);
    if (value && *value >= least) return std::string();
    return "`" + text + "` is not a whole number of at least " + std::to_string(least);
  };
  return option->type_name(unit)->check(CLI::Validator(check, std::string()));
}

CLI::Option* seconds(CLI::Option* option) {
  auto check = [](const std::string& text) {
    const auto value = number_in<double>(text);
    if (value && std::isfinite(*value) && *value > 0) return std::string();
    return "`" + text + "` is not a number of seconds above 0";
  };
  return option->type_name("SEC")->check(CLI::Validator(check, std::string()));
}

// An option with a value, which the help calls `type`.
template <typename Value>
CLI::Option* add_value(CLI::App* command, const char* names, Value& value, const char* type,
                       const char* brief) {
  return command->add_option(names, value, brief)->type_name(type);
}

// Of a gateway: signals end it, and a response that breaks the contract is reported.
template <typename Options>
int run_as_client(int (*run)(const Options&), const Options& options) try {
  end_on_signals();
  return run(options);
} catch (const nlohmann::json::exception& error) {
  return makes_no_sense(error);
}

// A local one leaves signals at their defaults, or sets them itself.
enum class CommandKind { kClient, kLocal };

// The options of `command`, with which it runs once the command line is parsed.
template <typename Options>
Options& command_options(CLI::App* command, Parsed& parsed, int (*run)(const Options&),
                         CommandKind kind = CommandKind::kClient) {
  const auto options = std::make_shared<Options>();
  command->callback([&parsed, options, run, kind] {
    parsed.run = [options, run, kind] {
      return kind == CommandKind::kClient ? run_as_client(run, *options) : run(*options);
    };
  });
  return *options;
}

CLI::Option* repeatable(CLI::Option* option) { return option->allow_extra_args(false)->take_all(); }

void add_endpoint(CLI::App* command, ClientOptions& client) {
  add_value(command, "--url", client.url, "URL",
            "The gateway: http(s)://HOST:PORT or unix:/PATH (ISOGATE_URL)");
  add_value(command, "--ca-file", client.ca_file, "FILE",
            "With https: trust these authorities, PEM (ISOGATE_CA_FILE; else the system's)");
  add_value(command, "--cert", client.cert_file, "FILE",
            "With https: present this client certificate, PEM (ISOGATE_CERT_FILE)");
  add_value(command, "--cert-key", client.cert_key_file, "FILE",
            "Its key, PEM (ISOGATE_CERT_KEY_FILE; else in the file of --cert)");
  add_value(command, "--state-dir", client.state_dir, "DIR", "Where a local gateway's socket and key are");
  add_value(command, "--key-file", client.key_file, "FILE",
            "File with the API key (else ISOGATE_KEY, else local.key)");
}

void add_client(CLI::App* command, ClientOptions& client) {
  add_endpoint(command, client);
  command->add_flag("--json", client.json, "Print the gateway's JSON; errors as an error object");
}

void add_scope(CLI::App* command, std::string& scope, std::string& user) {
  choice(
      command->add_option("--scope", scope, "Paths in the workspace, or absolute in the sandbox's own view"),
      "workspace|sandbox");
  add_value(command, "--user", user, "USER", "As this user, where the configuration admits it");
}

void add_file(CLI::App* command, FileOptions& file, bool path_required) {
  add_client(command, file.client);
  add_value(command, "--agent", file.agent, "ID", "The agent whose workspace it is (default: default)");
  add_scope(command, file.scope, file.user);
  add_value(command, "path", file.path, "PATH", "Path in the workspace")->required(path_required);
}

// "boolean", "a | b", "integer", … to what follows the option in the help.
std::string value_name(const Setting& setting) {
  if (setting.path.ends_with("_dir") || setting.path == "workdir") return "DIR";
  if (setting.path.ends_with(".file") || setting.path == "shell") return "FILE";
  std::string name = type_of(setting);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string without_spaces(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

// A flag for a boolean; a list may be given in several options.
CLI::Option* setting_option(CLI::App* command, const Setting& setting, TextPairs& flags) {
  const std::string path(setting.path), brief(setting.brief), flag = flag_name(path), type = type_of(setting);
  if (type == "boolean")
    return command->add_flag_function(
        flag, [&flags, path](std::int64_t count) { flags.emplace_back(path, count > 0 ? "true" : "false"); },
        brief);
  if (type != "list" && type != "object")
    return command->add_option_function<std::string>(
        flag, [&flags, path](const std::string& text) { flags.emplace_back(path, text); }, brief);
  auto add = [&flags, path](const std::vector<std::string>& texts) {
    flags.emplace_back(path, join(texts, ","));
  };
  return repeatable(command->add_option_function<std::vector<std::string>>(flag, add, brief));
}

void add_setting(CLI::App* command, const Setting& setting, ConfigOptions& options) {
  CLI::Option* option = setting_option(command, setting, options.flags);
  const std::string type = type_of(setting);
  if (type.find(" | ") != std::string::npos)
    choice(option, without_spaces(type));
  else if (type != "boolean")
    option->type_name(value_name(setting));
  option->group("Settings");
}

void declare_serve(CLI::App& app, Parsed& parsed) {
  CLI::App* serve = app.add_subcommand("serve", "Run the gateway");
  auto& options = command_options(serve, parsed, run_serve, CommandKind::kLocal);
  add_value(serve, "--config", options.file, "FILE", "The configuration, YAML or JSON (ISOGATE_CONFIG)");
  add_value(serve, "--port", options.port, "PORT", "Port of the first TCP listener")
      ->check(CLI::Range(0, 65535).description(""));
  repeatable(
      add_value(serve, "--backend", options.backends, "NAME", "Use just these backends, in this order"));
  for (const Setting& setting : top_settings()) add_setting(serve, setting, options);
  serve->footer("Every setting is explained by `isogate config docs`.");
}

std::string flag_of(std::string setting) {
  std::ranges::replace(setting, '_', '-');
  return "--" + setting;
}

// Where and as what a program runs, and its limits.
void add_place(CLI::App* command, ExecOptions& options) {
  seconds(command->add_option("--timeout", options.timeout_sec, "Seconds until it is killed"));
  repeatable(add_value(command, "--env", options.env, "NAME=VALUE", "Add a variable to its environment"));
  add_value(command, "--cwd", options.cwd, "PATH", "Its directory, relative to the workspace");
  add_value(command, "--user", options.user, "USER", "As this user, where the configuration admits it");
  for (size_t row = 0; row < kLimitKindCount; ++row) {
    const LimitKind& kind = kLimitKinds[row];
    if (kind.most_of_exec == 0) continue;
    count(command->add_option(flag_of(kind.setting), options.limits[row], kind.brief), kind.unit,
          kind.least_of_exec);
  }
  add_value(command, "--backend", options.backend, "NAME", "This backend or an error");
  choice(command->add_option("--min-isolation", options.min_isolation, "The least isolation to accept"),
         "none|namespace|container|vm");
}

void declare_exec(CLI::App& app, Parsed& parsed) {
  CLI::App* exec = app.add_subcommand("exec", "Run one program in a sandbox");
  ExecOptions& options = parsed.exec;
  add_client(exec, options.client);
  add_value(exec, "-c,--command", options.command, "COMMAND", "A line for the shell, in place of a program");
  add_value(exec, "--agent", options.agent, "ID", "The agent it runs for (default: default)");
  exec->add_flag("--stdin", options.read_stdin, "Give it all of this command's stdin, read before");
  exec->add_flag("-i,--interactive", options.interactive, "Give it this command's stdin while it runs");
  exec->add_flag("-t,--tty", options.tty, "Give it a terminal: this one");
  exec->add_flag("-d,--background", options.background,
                 "Print its exec id and leave it running; see ps, logs, attach, kill");
  add_place(exec, options);
  add_value(exec, "--artifact-dir", options.artifact_dir, "PATH", "Report files that appear below it");
  count(exec->add_option("--max-output", options.max_output_bytes, "Bytes kept of stdout, and of stderr"),
        "BYTES", 0);
  exec->add_flag("--stream", options.stream, "Show output as it comes, without a cap");
  exec->add_flag("--lines", options.lines, "With --stream: whole lines at a time");
  add_value(exec, "argv", options.argv, "ARGV", "The program and its arguments, after --");
  exec->footer(
      "Ends with the program's exit code; 124 timeout, 137 out of memory, 125 gateway.\n"
      "  isogate exec -- python3 -c 'print(1)'\n  isogate exec -c 'make && ./a.out' --timeout 60");
  exec->callback([&parsed] { parsed.run = [&parsed] { return run_as_client(run_exec, parsed.exec); }; });
}

void declare_shell(CLI::App& app, Parsed& parsed) {
  CLI::App* shell = app.add_subcommand("shell", "Open a login shell in a sandbox, on this terminal");
  auto& own = command_options(shell, parsed, run_shell);
  ExecOptions& options = own.exec;
  add_endpoint(shell, options.client);
  add_value(shell, "agent", options.agent, "AGENT", "The agent whose sandbox it is (default: default)");
  shell->add_flag("--rm", own.remove,
                  "End the sandbox afterwards, workspace and all; without AGENT it is a new one");
  add_value(shell, "--image", own.image, "IMAGE",
            "Create the sandbox with this image, where the configuration admits it");
  add_place(shell, options);
  shell->footer("Ends with the shell's exit code. `~.` at the beginning of a line detaches.");
}

void add_exec_id(CLI::App* command, LongExecOptions& options) {
  add_value(command, "exec_id", options.exec_id, "EXEC_ID", "The exec, as `ps` names it")->required();
  add_value(command, "--agent", options.agent, "ID", "Refuse if it is of another agent");
}

void declare_long_execs(CLI::App& app, Parsed& parsed) {
  CLI::App* ps = app.add_subcommand("ps", "List long-lived execs, running and lately ended");
  auto& ps_options = command_options(ps, parsed, run_ps);
  add_client(ps, ps_options.client);
  add_value(ps, "--agent", ps_options.agent, "ID", "Only those of this agent");

  CLI::App* logs = app.add_subcommand("logs", "Print the kept output of a long-lived exec");
  auto& logs_options = command_options(logs, parsed, run_logs);
  add_client(logs, logs_options.client);
  logs->add_flag("-f,--follow", logs_options.follow, "Go on until it has ended");
  add_exec_id(logs, logs_options);

  CLI::App* attach = app.add_subcommand("attach", "Connect to a long-lived exec: output, stdin, terminal");
  auto& attach_options = command_options(attach, parsed, run_attach);
  add_endpoint(attach, attach_options.client);
  attach->add_flag("--read-only", attach_options.read_only, "Only its output, beside another client");
  add_exec_id(attach, attach_options);
  attach->footer(
      "Ends with the program's exit code. Ctrl-C goes to the program, a second one kills it; Ctrl-\\ "
      "detaches.\nOn a terminal all keys go to the program; `~.` at the beginning of a line detaches.");

  CLI::App* kill = app.add_subcommand("kill", "Kill a long-lived exec and all that it started");
  auto& kill_options = command_options(kill, parsed, run_kill);
  add_client(kill, kill_options.client);
  add_value(kill, "-s,--signal", kill_options.signal, "SIGNAL", "Send its process group this signal instead");
  add_exec_id(kill, kill_options);
}

void declare_files(CLI::App& app, Parsed& parsed) {
  CLI::App* read = app.add_subcommand("read", "Copy a file out of a workspace");
  auto& read_options = command_options(read, parsed, run_read);
  add_file(read, read_options, true);
  add_value(read, "-o,--output", read_options.output, "FILE",
            "Write to this file, whole or not at all; -: stdout");
  count(read->add_option("--offset", read_options.offset, "Begin at this byte"), "BYTES", 0);
  count(read->add_option("--limit", read_options.limit, "At most so many bytes"), "BYTES", 1);

  CLI::App* write = app.add_subcommand("write", "Copy a file into a workspace, whole or not at all");
  auto& write_options = command_options(write, parsed, run_write);
  add_file(write, write_options, true);
  add_value(write, "source", write_options.source, "FILE", "The file to copy; - or none: stdin");
  write->add_flag("--append", write_options.append, "Add to the end");
  add_value(write, "--mode", write_options.mode, "MODE", "Permission bits, octal");
  write->add_flag("--durable", write_options.durable, "On disk when it returns");
  write->add_flag("--replace", write_options.replace, "Replace a read-only file, too");

  CLI::App* copy = app.add_subcommand("cp", "Copy files and directories into a workspace or out of it");
  auto& copy_options = command_options(copy, parsed, run_copy);
  add_client(copy, copy_options.client);
  copy->add_flag("-r,--recursive", copy_options.recursive, "Directories, and all that is in them");
  copy->add_flag("-f,--replace", copy_options.replace, "Replace read-only files in a workspace, too");
  add_scope(copy, copy_options.scope, copy_options.user);
  add_value(copy, "source", copy_options.from, "SRC", "AGENT:PATH, a path of this machine, or - for stdin")
      ->required();
  add_value(copy, "destination", copy_options.to, "DST",
            "AGENT:PATH, a path of this machine, or - for stdout")
      ->required();
  copy->footer(
      "A directory that is there is copied into; SRC/. is the content of SRC. With -r, - is a tar.\n"
      "Ends with 1 if something, a symlink or a device, was left out; all else is copied.\n"
      "  isogate cp -r src alice:project\n  isogate cp alice:out/report.pdf .");

  CLI::App* list = app.add_subcommand("ls", "List a directory of a workspace");
  auto& list_options = command_options(list, parsed, run_list);
  add_file(list, list_options, false);
  list->add_flag("-R,--recursive", list_options.recursive, "The whole tree");
  list->add_flag("-l,--long", list_options.with_details, "Type, mode, size and time of each");

  CLI::App* remove = app.add_subcommand("rm", "Remove a file or a directory of a workspace");
  auto& remove_options = command_options(remove, parsed, run_remove);
  add_file(remove, remove_options, true);
  remove->add_flag("-r,--recursive", remove_options.recursive, "A directory and all that is in it");

  CLI::App* watch = app.add_subcommand("watch", "Print what changes in a directory of a workspace");
  auto& watch_options = command_options(watch, parsed, run_watch);
  add_file(watch, watch_options, false);
  watch->add_flag("-R,--recursive", watch_options.recursive, "The whole tree");
  watch->footer("Runs until Ctrl-C, or until the directory is removed or the sandbox ends.");
}

void declare_sandbox(CLI::App& app, Parsed& parsed) {
  CLI::App* sandbox = app.add_subcommand("sandbox", "Create, list and end sandboxes");
  sandbox->require_subcommand(1);
  CLI::App* create = sandbox->add_subcommand("create", "Create a sandbox before its first use");
  auto& creation = command_options(create, parsed, run_sandbox_create);
  add_client(create, creation.client);
  add_value(create, "agent", creation.agent, "AGENT", "The agent whose sandbox it is (default: default)");
  add_value(create, "--image", creation.image, "IMAGE",
            "In place of its backend's own image, where the configuration admits it");
  add_value(create, "--backend", creation.backend, "NAME", "On this backend, or not at all");
  choice(create->add_option("--min-isolation", creation.min_isolation, "With at least this isolation"),
         "none|namespace|container|vm");
  CLI::App* list = sandbox->add_subcommand("ls", "This tenant's sandboxes, the last used first");
  auto& listing = command_options(list, parsed, run_sandbox_list);
  add_client(list, listing.client);
  list->add_flag("--orphans", listing.orphans,
                 "What lost sandboxes have left on an Engine; over the gateway's Unix socket");
  CLI::App* remove = sandbox->add_subcommand("rm", "End what runs in a sandbox; its workspace stays");
  auto& removal = command_options(remove, parsed, run_sandbox_remove);
  add_client(remove, removal.client);
  CLI::Option* purge = remove->add_flag("--purge", removal.purge, "Its workspace goes as well");
  CLI::Option* orphan = remove->add_flag(
      "--orphan", removal.orphans, "All that a lost sandbox has left, named by its id of `ls --orphans`");
  orphan->excludes(purge);
  remove->add_flag("--running", removal.running, "With --orphan: also where it still runs")->needs(orphan);
  add_value(remove, "agent", removal.agents, "AGENT", "The agent whose sandbox it is; several may be named")
      ->required();
}

void declare_port_forward(CLI::App& app, Parsed& parsed) {
  CLI::App* forward = app.add_subcommand("port-forward", "Make ports of a sandbox reachable on this machine");
  auto& options = command_options(forward, parsed, run_port_forward);
  add_endpoint(forward, options.client);
  add_value(forward, "--address", options.address, "ADDRESS", "Listen on this address (default: 127.0.0.1)");
  add_value(forward, "agent", options.agent, "AGENT", "The agent whose sandbox it is")->required();
  add_value(forward, "ports", options.ports, "[LOCAL:]PORT",
            "A TCP port of the sandbox, and before it the port here; :PORT: any free one")
      ->required();
  forward->footer("Until Ctrl-C.\n  isogate port-forward alice 8080:80 5432");
}

void declare_mcp(CLI::App& app, Parsed& parsed) {
  CLI::App* mcp = app.add_subcommand("mcp", "Connect an MCP host to a gateway, over stdin and stdout");
  auto& options = command_options(mcp, parsed, run_mcp);
  add_endpoint(mcp, options.client);
  mcp->add_flag("--stdio", options.stdio, "Required: messages on stdin, answers on stdout");
  add_value(mcp, "--agent", options.agent, "ID",
            "The agent whose sandbox it is (default: as each call says)");
  mcp->footer(
      "Until stdin ends, which also ends what runs. Clients pass few variables on: use the options.\n"
      "  isogate mcp --stdio --url https://gateway:9090 --key-file /etc/isogate/key --agent alice");
}

void declare_probe(CLI::App& app, Parsed& parsed) {
  CLI::App* probe = app.add_subcommand("probe", "Show every backend, and why it is or is not chosen");
  auto& options = command_options(probe, parsed, run_probe, CommandKind::kLocal);
  add_client(probe, options.client);
  add_value(probe, "--config", options.config.file, "FILE", "Probe by this configuration, without a gateway");
  repeatable(
      add_value(probe, "--backend", options.config.backends, "NAME", "With --config: just these backends"));
  probe->footer("Ends with 0 if a backend may serve, with 1 if none may.");
}

void declare_plugin(CLI::App& app, Parsed& parsed) {
  CLI::App* plugin = app.add_subcommand("plugin", "Look at plugins");
  plugin->require_subcommand(1);
  CLI::App* describe = plugin->add_subcommand("describe", "Check a plugin file and show its descriptor");
  auto& described = command_options(describe, parsed, run_plugin_describe, CommandKind::kLocal);
  add_value(describe, "file", described.file, "FILE", "The .so file")->required();
  describe->add_flag("--json", described.json, "Print JSON");
  CLI::App* list = plugin->add_subcommand("list", "The same, briefly, for every plugin in plugin_dir");
  auto& listing = command_options(list, parsed, run_plugin_list, CommandKind::kLocal);
  add_value(list, "--config", listing.config.file, "FILE", "The configuration");
  list->add_flag("--json", listing.json, "Print JSON");
}

void declare_config(CLI::App& app, Parsed& parsed) {
  CLI::App* config = app.add_subcommand("config", "Check and explain the configuration");
  config->require_subcommand(1);
  CLI::App* check =
      config->add_subcommand("check", "List the mistakes in it, or confirm that there are none");
  add_value(check, "file", command_options(check, parsed, run_config_check, CommandKind::kLocal).file, "FILE",
            "YAML or JSON; none: ISOGATE_CONFIG");
  CLI::App* show = config->add_subcommand("show", "The effective configuration as JSON, secrets hidden");
  add_value(show, "file", command_options(show, parsed, run_config_show, CommandKind::kLocal).file, "FILE",
            "YAML or JSON; none: ISOGATE_CONFIG");
  config->add_subcommand("schema", "Its JSON Schema")->callback([&parsed] {
    parsed.run = run_config_schema;
  });
  config->add_subcommand("docs", "Every setting, explained, as Markdown")->callback([&parsed] {
    parsed.run = run_config_docs;
  });
}

void declare_key(CLI::App& app, Parsed& parsed) {
  CLI::App* key = app.add_subcommand("key", "Make API keys");
  key->require_subcommand(1);
  CLI::App* make = key->add_subcommand("new", "Print a new key, once, and its hash for the configuration");
  auto& made = command_options(make, parsed, run_key_new, CommandKind::kLocal);
  make->add_flag("--json", made.json, "Print JSON");
  make->add_flag("--e2b", made.e2b, "A key of the form that E2B's SDKs take");
  CLI::App* hash = key->add_subcommand("hash", "Hash a key from stdin, or asked for on the terminal");
  hash->add_flag("--json", command_options(hash, parsed, run_key_hash, CommandKind::kLocal).json,
                 "Print JSON");
}

OptionInfo option_info(const CLI::Option* option) {
  OptionInfo info;
  for (const std::string& name : option->get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) info.names.push_back("--" + name);
  bool flag = option->get_items_expected_max() == 0;
  info.value = flag ? "" : option->get_type_name();
  info.brief = option->get_description();
  info.repeats = option->get_items_expected_max() > 1;
  return info;
}

}  // namespace

std::vector<std::string> OptionInfo::choices() const {
  std::vector<std::string> all;
  if (value.find('|') == std::string::npos) return all;
  for (const std::string_view part : split(value, '|')) all.emplace_back(part);
  return all;
}

CommandInfo command_info(const CLI::App* app) {
  CommandInfo info{app->get_name(), app->get_description(), {}, {}};
  for (const CLI::Option* option : app->get_options())
    if (!option->get_group().empty()) info.options.push_back(option_info(option));
  for (const CLI::App* inner : app->get_subcommands([](const CLI::App*) { return true; }))
    if (!inner->get_group().empty()) info.commands.push_back(command_info(inner));
  return info;
}

void declare(CLI::App& app, Parsed& parsed) {
  app.set_version_flag("--version", "isogate " ISOGATE_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print help");
  app.require_subcommand(1);
  app.get_formatter()->column_width(32);
  declare_serve(app, parsed);
  declare_exec(app, parsed);
  declare_shell(app, parsed);
  declare_long_execs(app, parsed);
  declare_files(app, parsed);
  declare_sandbox(app, parsed);
  declare_port_forward(app, parsed);
  declare_mcp(app, parsed);
  declare_probe(app, parsed);
  declare_plugin(app, parsed);
  declare_config(app, parsed);
  declare_key(app, parsed);
  CLI::App* completion = app.add_subcommand("completion", "Print completions for a shell");
  choice(completion->add_option("shell", parsed.completion_shell, "The shell"), "bash|zsh|fish")->required();
  completion->callback([&parsed] {
    parsed.run = [&parsed] { return print(completion_script(parsed.completion_shell)), kDone; };
  });
  CLI::App* man = app.add_subcommand("man", "Print the man page")->group("");
  man->callback(
      [&app, &parsed] { parsed.run = [&app] { return print(man_page(command_info(&app))), kDone; }; });
}

}  // namespace isogate::cli
