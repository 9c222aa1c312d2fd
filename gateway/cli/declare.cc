#include "gateway/cli/declare.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>

#include "gateway/cli/cli.h"
#include "gateway/cli/output.h"
#include "gateway/config/settings.h"
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

CLI::Option* repeatable(CLI::Option* option) { return option->allow_extra_args(false)->take_all(); }

void add_endpoint(CLI::App* command, ClientOptions& client) {
  command->add_option("--url", client.url, "The gateway: http(s)://HOST:PORT or unix:/PATH (ISOGATE_URL)")
      ->type_name("URL");
  command
      ->add_option("--ca-file", client.ca_file,
                   "With https: trust these authorities, PEM (ISOGATE_CA_FILE; else the system's)")
      ->type_name("FILE");
  command
      ->add_option("--cert", client.cert_file,
                   "With https: present this client certificate, PEM (ISOGATE_CERT_FILE)")
      ->type_name("FILE");
  command
      ->add_option("--cert-key", client.cert_key_file,
                   "Its key, PEM (ISOGATE_CERT_KEY_FILE; else in the file of --cert)")
      ->type_name("FILE");
  command->add_option("--state-dir", client.state_dir, "Where a local gateway's socket and key are")
      ->type_name("DIR");
  command
      ->add_option("--key-file", client.key_file, "File with the API key (else ISOGATE_KEY, else local.key)")
      ->type_name("FILE");
}

void add_client(CLI::App* command, ClientOptions& client) {
  add_endpoint(command, client);
  command->add_flag("--json", client.json, "Print the gateway's JSON; errors as an error object");
}

void add_scope(CLI::App* command, std::string& scope, std::string& user) {
  choice(
      command->add_option("--scope", scope, "Paths in the workspace, or absolute in the sandbox's own view"),
      "workspace|sandbox");
  command->add_option("--user", user, "As this user, where the configuration admits it")->type_name("USER");
}

void add_file(CLI::App* command, FileOptions& file, bool path_required) {
  add_client(command, file.client);
  command->add_option("--agent", file.agent, "The agent whose workspace it is (default: default)")
      ->type_name("ID");
  add_scope(command, file.scope, file.user);
  command->add_option("path", file.path, "Path in the workspace")->type_name("PATH")->required(path_required);
}

// "boolean", "a | b", "integer", … to what follows the option in the help.
std::string value_name(const SettingInfo& setting) {
  if (setting.path.ends_with("_dir") || setting.path == "workdir") return "DIR";
  if (setting.path.ends_with(".file") || setting.path == "shell") return "FILE";
  std::string name = setting.type;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string without_spaces(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

// A flag for a boolean; a list may be given in several options.
CLI::Option* setting_option(CLI::App* command, const SettingInfo& setting, TextPairs& flags) {
  std::string path = setting.path;
  if (setting.type == "boolean")
    return command->add_flag_function(
        setting.flag,
        [&flags, path](std::int64_t count) { flags.emplace_back(path, count > 0 ? "true" : "false"); },
        setting.brief);
  if (setting.type != "list" && setting.type != "object")
    return command->add_option_function<std::string>(
        setting.flag, [&flags, path](const std::string& text) { flags.emplace_back(path, text); },
        setting.brief);
  auto add = [&flags, path](const std::vector<std::string>& texts) {
    flags.emplace_back(path, join(texts, ","));
  };
  return repeatable(command->add_option_function<std::vector<std::string>>(setting.flag, add, setting.brief));
}

void add_setting(CLI::App* command, const SettingInfo& setting, ConfigOptions& options) {
  CLI::Option* option = setting_option(command, setting, options.flags);
  if (setting.type.find(" | ") != std::string::npos)
    choice(option, without_spaces(setting.type));
  else if (setting.type != "boolean")
    option->type_name(value_name(setting));
  option->group("Settings");
}

void declare_serve(CLI::App& app, Parsed& parsed) {
  CLI::App* serve = app.add_subcommand("serve", "Run the gateway");
  ConfigOptions& options = parsed.serve;
  serve->add_option("--config", options.file, "The configuration, YAML or JSON (ISOGATE_CONFIG)")
      ->type_name("FILE");
  serve->add_option("--port", options.port, "Port of the first TCP listener")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535).description(""));
  repeatable(serve->add_option("--backend", options.backends, "Use just these backends, in this order"))
      ->type_name("NAME");
  for (const SettingInfo& setting : settings())
    if (!setting.flag.empty()) add_setting(serve, setting, options);
  serve->footer("Every setting is explained by `isogate config docs`.");
  serve->callback([&parsed] { parsed.run = [&parsed] { return run_serve(parsed.serve); }; });
}

std::string flag_of(std::string setting) {
  std::ranges::replace(setting, '_', '-');
  return "--" + setting;
}

// Where and as what a program runs, and its limits.
void add_place(CLI::App* command, ExecOptions& options) {
  seconds(command->add_option("--timeout", options.timeout_sec, "Seconds until it is killed"));
  repeatable(command->add_option("--env", options.env, "Add a variable to its environment"))
      ->type_name("NAME=VALUE");
  command->add_option("--cwd", options.cwd, "Its directory, relative to the workspace")->type_name("PATH");
  command->add_option("--user", options.user, "As this user, where the configuration admits it")
      ->type_name("USER");
  for (size_t row = 0; row < kLimitKindCount; ++row) {
    const LimitKind& kind = kLimitKinds[row];
    if (kind.most_of_exec == 0) continue;
    count(command->add_option(flag_of(kind.setting), options.limits[row], kind.brief), kind.unit,
          kind.least_of_exec);
  }
  command->add_option("--backend", options.backend, "This backend or an error")->type_name("NAME");
  choice(command->add_option("--min-isolation", options.min_isolation, "The least isolation to accept"),
         "none|namespace|container|vm");
}

void declare_exec(CLI::App& app, Parsed& parsed) {
  CLI::App* exec = app.add_subcommand("exec", "Run one program in a sandbox");
  ExecOptions& options = parsed.exec;
  add_client(exec, options.client);
  exec->add_option("-c,--command", options.command, "A line for the shell, in place of a program")
      ->type_name("COMMAND");
  exec->add_option("--agent", options.agent, "The agent it runs for (default: default)")->type_name("ID");
  exec->add_flag("--stdin", options.read_stdin, "Give it all of this command's stdin, read before");
  exec->add_flag("-i,--interactive", options.interactive, "Give it this command's stdin while it runs");
  exec->add_flag("-t,--tty", options.tty, "Give it a terminal: this one");
  exec->add_flag("-d,--background", options.background,
                 "Print its exec id and leave it running; see ps, logs, attach, kill");
  add_place(exec, options);
  exec->add_option("--artifact-dir", options.artifact_dir, "Report files that appear below it")
      ->type_name("PATH");
  count(exec->add_option("--max-output", options.max_output_bytes, "Bytes kept of stdout, and of stderr"),
        "BYTES", 0);
  exec->add_flag("--stream", options.stream, "Show output as it comes, without a cap");
  exec->add_flag("--lines", options.lines, "With --stream: whole lines at a time");
  exec->add_option("argv", options.argv, "The program and its arguments, after --")->type_name("ARGV");
  exec->footer(
      "Ends with the program's exit code; 124 timeout, 137 out of memory, 125 gateway.\n"
      "  isogate exec -- python3 -c 'print(1)'\n  isogate exec -c 'make && ./a.out' --timeout 60");
  exec->callback([&parsed] { parsed.run = [&parsed] { return run_exec(parsed.exec); }; });
}

void declare_shell(CLI::App& app, Parsed& parsed) {
  CLI::App* shell = app.add_subcommand("shell", "Open a login shell in a sandbox, on this terminal");
  ExecOptions& options = parsed.shell.exec;
  add_endpoint(shell, options.client);
  shell->add_option("agent", options.agent, "The agent whose sandbox it is (default: default)")
      ->type_name("AGENT");
  shell->add_flag("--rm", parsed.shell.remove,
                  "End the sandbox afterwards, workspace and all; without AGENT it is a new one");
  shell
      ->add_option("--image", parsed.shell.image,
                   "Create the sandbox with this image, where the configuration admits it")
      ->type_name("IMAGE");
  add_place(shell, options);
  shell->footer("Ends with the shell's exit code. `~.` at the beginning of a line detaches.");
  shell->callback([&parsed] { parsed.run = [&parsed] { return run_shell(parsed.shell); }; });
}

void add_exec_id(CLI::App* command, LongExecOptions& options) {
  command->add_option("exec_id", options.exec_id, "The exec, as `ps` names it")
      ->type_name("EXEC_ID")
      ->required();
  command->add_option("--agent", options.agent, "Refuse if it is of another agent")->type_name("ID");
}

void declare_long_execs(CLI::App& app, Parsed& parsed) {
  CLI::App* ps = app.add_subcommand("ps", "List long-lived execs, running and lately ended");
  add_client(ps, parsed.ps.client);
  ps->add_option("--agent", parsed.ps.agent, "Only those of this agent")->type_name("ID");
  ps->callback([&parsed] { parsed.run = [&parsed] { return run_ps(parsed.ps); }; });

  CLI::App* logs = app.add_subcommand("logs", "Print the kept output of a long-lived exec");
  add_client(logs, parsed.logs.client);
  logs->add_flag("-f,--follow", parsed.logs.follow, "Go on until it has ended");
  add_exec_id(logs, parsed.logs);
  logs->callback([&parsed] { parsed.run = [&parsed] { return run_logs(parsed.logs); }; });

  CLI::App* attach = app.add_subcommand("attach", "Connect to a long-lived exec: output, stdin, terminal");
  add_endpoint(attach, parsed.attach.client);
  attach->add_flag("--read-only", parsed.attach.read_only, "Only its output, beside another client");
  add_exec_id(attach, parsed.attach);
  attach->footer(
      "Ends with the program's exit code. Ctrl-C goes to the program, a second one kills it; Ctrl-\\ "
      "detaches.\nOn a terminal all keys go to the program; `~.` at the beginning of a line detaches.");
  attach->callback([&parsed] { parsed.run = [&parsed] { return run_attach(parsed.attach); }; });

  CLI::App* kill = app.add_subcommand("kill", "Kill a long-lived exec and all that it started");
  add_client(kill, parsed.kill.client);
  kill->add_option("-s,--signal", parsed.kill.signal, "Send its process group this signal instead")
      ->type_name("SIGNAL");
  add_exec_id(kill, parsed.kill);
  kill->callback([&parsed] { parsed.run = [&parsed] { return run_kill(parsed.kill); }; });
}

void declare_files(CLI::App& app, Parsed& parsed) {
  CLI::App* read = app.add_subcommand("read", "Copy a file out of a workspace");
  add_file(read, parsed.read, true);
  read->add_option("-o,--output", parsed.read.output, "Write to this file, whole or not at all; -: stdout")
      ->type_name("FILE");
  count(read->add_option("--offset", parsed.read.offset, "Begin at this byte"), "BYTES", 0);
  count(read->add_option("--limit", parsed.read.limit, "At most so many bytes"), "BYTES", 1);
  read->callback([&parsed] { parsed.run = [&parsed] { return run_read(parsed.read); }; });

  CLI::App* write = app.add_subcommand("write", "Copy a file into a workspace, whole or not at all");
  add_file(write, parsed.write, true);
  write->add_option("source", parsed.write.source, "The file to copy; - or none: stdin")->type_name("FILE");
  write->add_flag("--append", parsed.write.append, "Add to the end");
  write->add_option("--mode", parsed.write.mode, "Permission bits, octal")->type_name("MODE");
  write->add_flag("--durable", parsed.write.durable, "On disk when it returns");
  write->add_flag("--replace", parsed.write.replace, "Replace a read-only file, too");
  write->callback([&parsed] { parsed.run = [&parsed] { return run_write(parsed.write); }; });

  CLI::App* copy = app.add_subcommand("cp", "Copy files and directories into a workspace or out of it");
  add_client(copy, parsed.copy.client);
  copy->add_flag("-r,--recursive", parsed.copy.recursive, "Directories, and all that is in them");
  copy->add_flag("-f,--replace", parsed.copy.replace, "Replace read-only files in a workspace, too");
  add_scope(copy, parsed.copy.scope, parsed.copy.user);
  copy->add_option("source", parsed.copy.from, "AGENT:PATH, a path of this machine, or - for stdin")
      ->type_name("SRC")
      ->required();
  copy->add_option("destination", parsed.copy.to, "AGENT:PATH, a path of this machine, or - for stdout")
      ->type_name("DST")
      ->required();
  copy->footer(
      "A directory that is there is copied into; SRC/. is the content of SRC. With -r, - is a tar.\n"
      "Ends with 1 if something, a symlink or a device, was left out; all else is copied.\n"
      "  isogate cp -r src alice:project\n  isogate cp alice:out/report.pdf .");
  copy->callback([&parsed] { parsed.run = [&parsed] { return run_copy(parsed.copy); }; });

  CLI::App* list = app.add_subcommand("ls", "List a directory of a workspace");
  add_file(list, parsed.list, false);
  list->add_flag("-R,--recursive", parsed.list.recursive, "The whole tree");
  list->add_flag("-l,--long", parsed.list.with_details, "Type, mode, size and time of each");
  list->callback([&parsed] { parsed.run = [&parsed] { return run_list(parsed.list); }; });

  CLI::App* remove = app.add_subcommand("rm", "Remove a file or a directory of a workspace");
  add_file(remove, parsed.remove, true);
  remove->add_flag("-r,--recursive", parsed.remove.recursive, "A directory and all that is in it");
  remove->callback([&parsed] { parsed.run = [&parsed] { return run_remove(parsed.remove); }; });

  CLI::App* watch = app.add_subcommand("watch", "Print what changes in a directory of a workspace");
  add_file(watch, parsed.watch, false);
  watch->add_flag("-R,--recursive", parsed.watch.recursive, "The whole tree");
  watch->footer("Runs until Ctrl-C, or until the directory is removed or the sandbox ends.");
  watch->callback([&parsed] { parsed.run = [&parsed] { return run_watch(parsed.watch); }; });
}

void declare_sandbox(CLI::App& app, Parsed& parsed) {
  CLI::App* sandbox = app.add_subcommand("sandbox", "Create, list and end sandboxes");
  sandbox->require_subcommand(1);
  SandboxCreateOptions& creation = parsed.sandbox_create;
  CLI::App* create = sandbox->add_subcommand("create", "Create a sandbox before its first use");
  add_client(create, creation.client);
  create->add_option("agent", creation.agent, "The agent whose sandbox it is (default: default)")
      ->type_name("AGENT");
  create
      ->add_option("--image", creation.image,
                   "In place of its backend's own image, where the configuration admits it")
      ->type_name("IMAGE");
  create->add_option("--backend", creation.backend, "On this backend, or not at all")->type_name("NAME");
  choice(create->add_option("--min-isolation", creation.min_isolation, "With at least this isolation"),
         "none|namespace|container|vm");
  create->callback(
      [&parsed] { parsed.run = [&parsed] { return run_sandbox_create(parsed.sandbox_create); }; });
  SandboxOptions& options = parsed.sandbox;
  CLI::App* list = sandbox->add_subcommand("ls", "This tenant's sandboxes, the last used first");
  add_client(list, options.client);
  list->add_flag("--orphans", options.orphans,
                 "What lost sandboxes have left on an Engine; over the gateway's Unix socket");
  list->callback([&parsed] { parsed.run = [&parsed] { return run_sandbox_list(parsed.sandbox); }; });
  CLI::App* remove = sandbox->add_subcommand("rm", "End what runs in a sandbox; its workspace stays");
  add_client(remove, options.client);
  CLI::Option* purge = remove->add_flag("--purge", options.purge, "Its workspace goes as well");
  CLI::Option* orphan = remove->add_flag(
      "--orphan", options.orphans, "All that a lost sandbox has left, named by its id of `ls --orphans`");
  orphan->excludes(purge);
  remove->add_flag("--running", options.running, "With --orphan: also where it still runs")->needs(orphan);
  remove->add_option("agent", options.agents, "The agent whose sandbox it is; several may be named")
      ->type_name("AGENT")
      ->required();
  remove->callback([&parsed] { parsed.run = [&parsed] { return run_sandbox_remove(parsed.sandbox); }; });
}

void declare_port_forward(CLI::App& app, Parsed& parsed) {
  CLI::App* forward = app.add_subcommand("port-forward", "Make ports of a sandbox reachable on this machine");
  PortForwardOptions& options = parsed.port_forward;
  add_endpoint(forward, options.client);
  forward->add_option("--address", options.address, "Listen on this address (default: 127.0.0.1)")
      ->type_name("ADDRESS");
  forward->add_option("agent", options.agent, "The agent whose sandbox it is")
      ->type_name("AGENT")
      ->required();
  forward
      ->add_option("ports", options.ports,
                   "A TCP port of the sandbox, and before it the port here; :PORT: any "
                   "free one")
      ->type_name("[LOCAL:]PORT")
      ->required();
  forward->footer("Until Ctrl-C.\n  isogate port-forward alice 8080:80 5432");
  forward->callback([&parsed] { parsed.run = [&parsed] { return run_port_forward(parsed.port_forward); }; });
}

void declare_mcp(CLI::App& app, Parsed& parsed) {
  CLI::App* mcp = app.add_subcommand("mcp", "Connect an MCP host to a gateway, over stdin and stdout");
  McpOptions& options = parsed.mcp;
  add_endpoint(mcp, options.client);
  mcp->add_flag("--stdio", options.stdio, "Required: messages on stdin, answers on stdout");
  mcp->add_option("--agent", options.agent, "The agent whose sandbox it is (default: as each call says)")
      ->type_name("ID");
  mcp->footer(
      "Until stdin ends, which also ends what runs. Clients pass few variables on: use the options.\n"
      "  isogate mcp --stdio --url https://gateway:9090 --key-file /etc/isogate/key --agent alice");
  mcp->callback([&parsed] { parsed.run = [&parsed] { return run_mcp(parsed.mcp); }; });
}

void declare_probe(CLI::App& app, Parsed& parsed) {
  CLI::App* probe = app.add_subcommand("probe", "Show every backend, and why it is or is not chosen");
  add_client(probe, parsed.probe.client);
  probe->add_option("--config", parsed.probe.config.file, "Probe by this configuration, without a gateway")
      ->type_name("FILE");
  repeatable(
      probe->add_option("--backend", parsed.probe.config.backends, "With --config: just these backends"))
      ->type_name("NAME");
  probe->footer("Ends with 0 if a backend may serve, with 1 if none may.");
  probe->callback([&parsed] { parsed.run = [&parsed] { return run_probe(parsed.probe); }; });
}

void declare_plugin(CLI::App& app, Parsed& parsed) {
  CLI::App* plugin = app.add_subcommand("plugin", "Look at plugins");
  plugin->require_subcommand(1);
  CLI::App* describe = plugin->add_subcommand("describe", "Check a plugin file and show its descriptor");
  describe->add_option("file", parsed.plugin.file, "The .so file")->type_name("FILE")->required();
  describe->add_flag("--json", parsed.plugin.json, "Print JSON");
  describe->callback([&parsed] { parsed.run = [&parsed] { return run_plugin_describe(parsed.plugin); }; });
  CLI::App* list = plugin->add_subcommand("list", "The same, briefly, for every plugin in plugin_dir");
  list->add_option("--config", parsed.plugin.config.file, "The configuration")->type_name("FILE");
  list->add_flag("--json", parsed.plugin.json, "Print JSON");
  list->callback([&parsed] { parsed.run = [&parsed] { return run_plugin_list(parsed.plugin); }; });
}

void declare_config(CLI::App& app, Parsed& parsed) {
  CLI::App* config = app.add_subcommand("config", "Check and explain the configuration");
  config->require_subcommand(1);
  CLI::App* check =
      config->add_subcommand("check", "List the mistakes in it, or confirm that there are none");
  check->add_option("file", parsed.config.file, "YAML or JSON; none: ISOGATE_CONFIG")->type_name("FILE");
  check->callback([&parsed] { parsed.run = [&parsed] { return run_config_check(parsed.config); }; });
  CLI::App* show = config->add_subcommand("show", "The effective configuration as JSON, secrets hidden");
  show->add_option("file", parsed.config.file, "YAML or JSON; none: ISOGATE_CONFIG")->type_name("FILE");
  show->callback([&parsed] { parsed.run = [&parsed] { return run_config_show(parsed.config); }; });
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
  make->add_flag("--json", parsed.key_json, "Print JSON");
  make->add_flag("--e2b", parsed.key_e2b, "A key of the form that E2B's SDKs take");
  make->callback(
      [&parsed] { parsed.run = [&parsed] { return run_key_new(parsed.key_json, parsed.key_e2b); }; });
  CLI::App* hash = key->add_subcommand("hash", "Hash a key from stdin, or asked for on the terminal");
  hash->add_flag("--json", parsed.key_json, "Print JSON");
  hash->callback([&parsed] { parsed.run = [&parsed] { return run_key_hash(parsed.key_json); }; });
}

int show_completion(const CLI::App& app, const std::string& shell) {
  CommandInfo tree = command_info(&app);
  print(shell == "bash"  ? completion_for_bash(tree)
        : shell == "zsh" ? completion_for_zsh(tree)
                         : completion_for_fish(tree));
  return kDone;
}

OptionInfo option_info(const CLI::Option* option) {
  OptionInfo info;
  for (const std::string& name : option->get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) info.names.push_back("--" + name);
  bool flag = option->get_items_expected_max() == 0;
  info.value = flag ? "" : option->get_type_name();
  info.brief = option->get_description();
  info.group = option->get_group();
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
  completion->callback([&app, &parsed] {
    parsed.run = [&app, &parsed] { return show_completion(app, parsed.completion_shell); };
  });
  CLI::App* man = app.add_subcommand("man", "Print the man page")->group("");
  man->callback(
      [&app, &parsed] { parsed.run = [&app] { return print(man_page(command_info(&app))), kDone; }; });
}

}  // namespace isogate::cli
