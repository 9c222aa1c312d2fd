#include "gateway/front/exec_request.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "gateway/base/redact.h"
#include "gateway/front/file_request.h"
#include "gateway/front/handlers.h"
#include "gateway/front/json_in.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

using nlohmann::json;

constexpr size_t kMaxArgument = 131071;  // MAX_ARG_STRLEN less its NUL
constexpr size_t kMaxArguments =
    1500 * 1024;  // all of argv and env: below what execve takes with its default stack
constexpr size_t kMaxArgumentCount = 100000;
constexpr size_t kMaxEnv = 4096;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLeastPids = 2;  // a program, and the init beside it that a backend may need
constexpr size_t kShown = 200;
constexpr size_t kLookedAt = 4096;  // of an argv, whole arguments

ApiError invalid_exec(std::string message) {
  return {.code = Code::kInvalidRequest, .message = std::move(message)};
}

// What follows the name of a secret in an argv is one value, whatever spaces are in it.
std::string without_value(std::span<const std::string> arguments, size_t at) {
  const std::string& argument = arguments[at];
  const bool after_name = at > 0 && arguments[at - 1].starts_with('-') &&
                          arguments[at - 1].find('=') == std::string::npos &&
                          is_secret_name(arguments[at - 1]);
  if (after_name) return "redacted";
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || !is_secret_name(std::string_view(argument).substr(0, equals)))
    return argument;
  return argument.substr(0, equals) + "=redacted";
}

void read_program(const App& app, const json& body, ExecSpec& spec) {
  const auto command = text_field(body, "command");
  const auto argv = body.find("argv");
  const bool has_argv = argv != body.end() && !argv->is_null();
  if (command.has_value() == has_argv)
    throw invalid_exec("give either `command` (run by the shell) or `argv`");
  if (command) {
    if (command->empty()) throw invalid_exec("`command` is empty");
    spec.argv = {app.config.shell, "-c", *command};
    spec.shown = journal_text({&*command, 1});
    return;
  }
  if (!argv->is_array() || argv->empty()) throw invalid_exec("`argv` must be a non-empty array of strings");
  for (const auto& each : *argv) {
    if (!each.is_string()) throw invalid_exec("`argv` must be a non-empty array of strings");
    spec.argv.push_back(each.get<std::string>());
  }
  spec.shown = journal_text(spec.argv);
  if (spec.argv.front().empty()) throw invalid_exec("`argv[0]` is empty");
}

void read_env(const App& app, const json& body, ExecSpec& spec) {
  const auto env = body.find("env");
  const bool none = env == body.end() || env->is_null();
  for (const auto& configured : app.config.exec.env) {
    if (none || !env->is_object() || !env->contains(configured.first)) spec.env.push_back(configured);
  }
  if (none) return;
  if (!env->is_object()) throw invalid_exec("`env` must be an object of strings");
  if (env->size() > kMaxEnv) throw invalid_exec("`env` has over " + std::to_string(kMaxEnv) + " variables");
  for (const auto& item : env->items()) {
    if (item.key().empty() || item.key().find('=') != std::string::npos) {
      throw invalid_exec("`" + printable(item.key(), 80) +
                         "` is not a variable's name: it must not be empty or hold `=`");
    }
    if (!item.value().is_string())
      throw invalid_exec("env." + printable(item.key(), 80) + " must be a string");
    spec.env.emplace_back(item.key(), item.value().get<std::string>());
  }
}

void check_names(const ExecSpec& spec) {
  if (spec.cwd.size() > kMaxPath)
    throw invalid_exec("`cwd` is longer than " + std::to_string(kMaxPath) + " bytes");
  if (spec.user.size() > kMaxUser)
    throw invalid_exec("`user` is longer than " + std::to_string(kMaxUser) + " bytes");
}

void check_sizes(const ExecSpec& spec) {
  if (spec.argv.size() > kMaxArgumentCount)
    throw invalid_exec("`argv` has over " + std::to_string(kMaxArgumentCount) + " arguments");
  size_t total = 0;
  const auto add = [&total](size_t size, const std::string& what) {
    if (size > kMaxArgument) {
      throw invalid_exec(
          what + " is " + std::to_string(size) + " bytes; a program takes at most " +
          std::to_string(kMaxArgument) +
          " in one argument or variable: write it to a file in the workspace, or send it as stdin");
    }
    total += size + 1 + sizeof(char*);
  };
  for (size_t i = 0; i < spec.argv.size(); ++i)
    add(spec.argv[i].size(), i == 2 ? "the command" : "argv[" + std::to_string(i) + "]");
  for (const auto& [name, value] : spec.env)
    add(name.size() + value.size() + 1, "env." + printable(name, 80));
  if (total > kMaxArguments) {
    throw invalid_exec("argv and env are " + std::to_string(total) +
                       " bytes together; a program takes at most " + std::to_string(kMaxArguments));
  }
}

void read_stdin(json& body, ParsedExec& parsed) {
  parsed.stdin_encoding = text_field(body, "stdin_encoding").value_or("utf-8");
  if (parsed.stdin_encoding != "utf-8" && parsed.stdin_encoding != "base64")
    throw invalid_exec("`stdin_encoding` must be utf-8 or base64");
  parsed.stdin_text = take_text_field(body, "stdin");
}

void read_limits(const json& body, ExecSpec& spec) {
  const auto cgroup = body.find("cgroup");
  if (cgroup == body.end() || cgroup->is_null()) return;
  if (!cgroup->is_object()) throw invalid_exec("`cgroup` must be an object");
  for (const auto& item : cgroup->items()) {
    if (item.key() != "memory_mb" && item.key() != "cpu_percent" && item.key() != "max_pids") {
      throw invalid_exec("unknown field `cgroup." + printable(item.key(), 80) +
                         "`; cgroup knows memory_mb, cpu_percent, max_pids");
    }
  }
  if (const auto value = count_field(*cgroup, "memory_mb", 1, 1 << 24))
    spec.limits.memory_bytes = *value * kMiB;
  if (const auto value = count_field(*cgroup, "cpu_percent", 1, 102400)) spec.limits.cpu_millis = *value * 10;
  if (const auto value = count_field(*cgroup, "max_pids", kLeastPids, 1 << 22)) spec.limits.pids = *value;
}

double read_timeout(const App& app, const json& body) {
  const double timeout = number_field(body, "timeout_sec").value_or(app.config.exec.timeout_sec);
  if (!std::isfinite(timeout) || timeout <= 0 || timeout > app.config.exec.max_timeout_sec) {
    throw invalid_exec("`timeout_sec` must be above 0 and at most " +
                       std::to_string(static_cast<long>(app.config.exec.max_timeout_sec)));
  }
  return timeout;
}

}  // namespace

std::string journal_text(std::span<const std::string> arguments) {
  std::string text;
  for (size_t i = 0; i < arguments.size() && text.size() < kLookedAt; ++i) {
    if (i > 0) text += ' ';
    text += arguments.size() == 1 ? arguments[i] : without_value(arguments, i);
  }
  return printable(redact(text), kShown);
}

ParsedExec parse_exec(const App& app, const Exchange& exchange, json& body) {
  ParsedExec parsed;
  ExecSpec& spec = parsed.spec;
  spec.tenant = exchange.principal.tenant;
  spec.request_id = exchange.request_id;
  if (bool_field(body, "background").value_or(false)) {
    throw ApiError{
        .code = Code::kUnsupported,
        .message = "`background` is not supported: run the program in the foreground with POST /exec-stream"};
  }
  read_program(app, body, spec);
  read_env(app, body, spec);
  check_sizes(spec);
  read_stdin(body, parsed);
  read_limits(body, spec);
  spec.timeout_sec = read_timeout(app, body);
  spec.cwd = text_field(body, "cwd").value_or("");
  spec.user = text_field(body, "user").value_or("");
  check_names(spec);
  spec.artifact_dir = text_field(body, "artifact_dir");
  spec.backend = text_field(body, "backend");
  if (const auto floor = text_field(body, "min_isolation")) {
    spec.min_isolation = parse_isolation(*floor);
    if (!spec.min_isolation) throw invalid_exec("`min_isolation` must be none, namespace, container or vm");
  }
  std::optional<std::string> agent_in_env;
  for (const auto& [name, value] : spec.env) {
    if (name == "AGENT_ID") agent_in_env = value;
  }
  spec.agent = agent_of(app, exchange, text_field(body, "agent_id"), agent_in_env);
  parsed.max_output_bytes = count_field(body, "max_output_bytes", 0, app.config.exec.max_max_output_bytes);
  parsed.lines = bool_field(body, "lines").value_or(false);
  return parsed;
}

}  // namespace isogate::front
