#include "gateway/front/api/execs.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gateway/front/api/access.h"
#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/files.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/long_execs.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/changes.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using nlohmann::json;

constexpr size_t kMaxArgument = 131071;  // MAX_ARG_STRLEN less its NUL
constexpr size_t kMaxArguments =
    1500 * 1024;  // all of argv and env: below what execve takes with its default stack
constexpr size_t kMaxArgumentCount = 100000;
constexpr size_t kMaxEnv = 4096;
constexpr size_t kShown = 200;
constexpr size_t kLookedAt = 4096;  // of each argument, and after so much no further one
constexpr std::string_view kPtyFields[] = {"cols", "rows"};

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

void read_program(const json& body, const std::string& shell, ExecSpec& spec) {
  const auto command = text_field(body, "command");
  const auto argv = body.find("argv");
  const bool has_argv = argv != body.end() && !argv->is_null();
  if (command.has_value() == has_argv)
    throw invalid_request("give either `command` (run by the shell) or `argv`");
  if (command) {
    if (command->empty()) throw invalid_request("`command` is empty");
    spec.call.argv = {shell, "-c", *command};
    return;
  }
  if (!argv->is_array() || argv->empty())
    throw invalid_request("`argv` must be a non-empty array of strings");
  for (const auto& each : *argv) {
    if (!each.is_string()) throw invalid_request("`argv` must be a non-empty array of strings");
    spec.call.argv.push_back(each.get<std::string>());
  }
  if (spec.call.argv.front().empty()) throw invalid_request("`argv[0]` is empty");
}

void read_env(const json& body, const ExecConfig& rules, ExecSpec& spec) {
  const auto env = body.find("env");
  const bool none = env == body.end() || env->is_null();
  for (const auto& configured : rules.env) {
    if (none || !env->is_object() || !env->contains(configured.first)) spec.call.env.push_back(configured);
  }
  if (none) return;
  if (!env->is_object()) throw invalid_request("`env` must be an object of strings");
  if (env->size() > kMaxEnv)
    throw invalid_request("`env` has over " + std::to_string(kMaxEnv) + " variables");
  for (const auto& item : env->items()) {
    if (item.key().empty() || item.key().find('=') != std::string::npos) {
      throw invalid_request("`" + printable(item.key(), 80) +
                            "` is not a variable's name: it must not be empty or hold `=`");
    }
    if (!item.value().is_string())
      throw invalid_request("env." + printable(item.key(), 80) + " must be a string");
    spec.call.env.emplace_back(item.key(), item.value().get<std::string>());
  }
}

void check_sizes(const ExecSpec& spec, bool by_shell) {
  if (spec.call.argv.size() > kMaxArgumentCount)
    throw invalid_request("`argv` has over " + std::to_string(kMaxArgumentCount) + " arguments");
  size_t total = 0;
  const auto add = [&total](size_t size, const std::string& what) {
    if (size > kMaxArgument) {
      throw invalid_request(
          what + " is " + std::to_string(size) + " bytes; a program takes at most " +
          std::to_string(kMaxArgument) +
          " in one argument or variable: write it to a file in the workspace, or send it as stdin");
    }
    total += size + 1 + sizeof(char*);
  };
  for (size_t i = 0; i < spec.call.argv.size(); ++i)
    add(spec.call.argv[i].size(), by_shell && i == 2 ? "the command" : "argv[" + std::to_string(i) + "]");
  for (const auto& [name, value] : spec.call.env)
    add(name.size() + value.size() + 1, "env." + printable(name, 80));
  if (total > kMaxArguments) {
    throw invalid_request("argv and env are " + std::to_string(total) +
                          " bytes together; a program takes at most " + std::to_string(kMaxArguments));
  }
}

void check_members(const json& object, const std::string& name, std::span<const std::string_view> known) {
  for (const auto& item : object.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    throw invalid_request("unknown field `" + name + "." + printable(item.key(), 80) + "`; " + name +
                          " knows " + join(known, ", "));
  }
}

void read_limits(const json& body, ExecSpec& spec) {
  const auto cgroup = body.find("cgroup");
  if (cgroup == body.end() || cgroup->is_null()) return;
  if (!cgroup->is_object()) throw invalid_request("`cgroup` must be an object");
  std::vector<std::string_view> known;
  for (const LimitKind& kind : kLimitKinds) {
    if (kind.most_of_exec == 0) continue;
    known.push_back(kind.setting);
    if (const auto value = count_field(*cgroup, kind.setting, kind.least_of_exec, kind.most_of_exec))
      spec.call.limits.set(kind.id, *value * kind.scale);
  }
  check_members(*cgroup, "cgroup", known);
}

double read_timeout(const json& body, const ExecConfig& rules, bool long_lived) {
  const double most = long_lived ? rules.max_background_sec : rules.max_timeout_sec;
  const double otherwise = long_lived ? most : rules.timeout_sec;
  const double timeout = number_field(body, "timeout_sec").value_or(otherwise);
  if (std::isfinite(timeout) && timeout > 0 && timeout <= most) return timeout;
  ApiError refused =
      invalid_request("`timeout_sec` must be above 0 and at most " + std::to_string(static_cast<long>(most)));
  refused.details_json = json{{"limit_sec", most}}.dump();
  throw refused;
}

void read_long_lived(const json& body, ParsedExec& parsed) {
  const bool background = bool_field(body, "background").value_or(false);
  const auto wait = number_field(body, "wait_sec");
  if (background && wait) throw invalid_request("give either `background` or `wait_sec`");
  if (wait && (!std::isfinite(*wait) || *wait < 0 || *wait > kMostWaitSec))
    throw invalid_request("`wait_sec` must be 0 to " + std::to_string(kMostWaitSec));
  parsed.long_lived = background || wait;
  parsed.wait_sec = wait.value_or(0);
  KeptTerms& terms = parsed.spec.terms;
  terms.stdin_open = bool_field(body, "stdin_open").value_or(false);
  if (terms.stdin_open && !parsed.long_lived)
    throw invalid_request("`stdin_open` needs `background` or `wait_sec`: give all of `stdin` otherwise");
}

void read_pty(const json& body, ParsedExec& parsed) {
  const auto pty = body.find("pty");
  if (pty == body.end() || pty->is_null()) return;
  if (!pty->is_object()) throw invalid_request("`pty` must be an object");
  if (!parsed.long_lived) throw invalid_request("`pty` needs `background` or `wait_sec`");
  ipc::ExecCall& call = parsed.spec.call;
  call.cols = static_cast<uint16_t>(count_field(*pty, "cols", 1, kMostCells).value_or(80));
  call.rows = static_cast<uint16_t>(count_field(*pty, "rows", 1, kMostCells).value_or(24));
  check_members(*pty, "pty", kPtyFields);
  call.flags |= ISOGATE_EXEC_PTY;
  parsed.spec.terms.pty = parsed.spec.terms.stdin_open = true;
  const auto is_term = [](const auto& each) { return each.first == "TERM"; };
  if (std::ranges::none_of(call.env, is_term)) call.env.emplace_back("TERM", "xterm-256color");
}

}  // namespace

std::string journal_text(std::span<const std::string> arguments) {
  std::string text;
  for (size_t i = 0; i < arguments.size() && text.size() < kLookedAt; ++i) {
    if (i > 0) text += ' ';
    text += std::string_view(arguments.size() == 1 ? arguments[i] : without_value(arguments, i))
                .substr(0, kLookedAt);
  }
  return printable(redact(text), kShown);
}

ParsedExec parse_exec(json& body, const ExecConfig& rules, const std::string& shell) {
  ParsedExec parsed;
  ExecSpec& spec = parsed.spec;
  read_long_lived(body, parsed);
  read_program(body, shell, spec);
  read_env(body, rules, spec);
  const bool by_shell = body.contains("command") && !body["command"].is_null();
  check_sizes(spec, by_shell);
  const std::span<const std::string> argv = spec.call.argv;
  spec.shown = journal_text(by_shell ? argv.subspan(2) : argv);
  parsed.stdin_encoding = encoding_field(body, "stdin_encoding");
  parsed.stdin_text = take_text_field(body, "stdin");
  read_limits(body, spec);
  read_pty(body, parsed);
  if (bool_field(body, "merge_stderr").value_or(false)) spec.call.flags |= ISOGATE_EXEC_MERGE_STDERR;
  spec.timeout_sec = read_timeout(body, rules, parsed.long_lived);
  spec.call.cwd = text_field(body, "cwd").value_or("");
  spec.call.user = text_field(body, "user").value_or("");
  check_path("cwd", spec.call.cwd);
  check_user(spec.call.user);
  spec.artifact_dir = text_field(body, "artifact_dir");
  spec.backend = text_field(body, "backend");
  spec.min_isolation = isolation_field(body, "min_isolation");
  parsed.agent_in_body = text_field(body, "agent_id");
  for (const auto& [name, value] : spec.call.env) {
    if (name == "AGENT_ID") parsed.agent_in_env = value;
  }
  parsed.max_output_bytes = count_field(body, "max_output_bytes", 0, rules.max_max_output_bytes);
  spec.terms.kept_bytes = parsed.max_output_bytes.value_or(rules.max_output_bytes);
  parsed.lines = bool_field(body, "lines").value_or(false);
  return parsed;
}

namespace {

// NDJSON events to the client, one at a time. What they take at the most is claimed before the program
// starts. The status and `start` wait until the backend has taken the call, so that what it refuses is
// answered as for /exec: for the first byte of output, the end, or kTakenAfter without a refusal.
class Streamed : public Output, public std::enable_shared_from_this<Streamed> {
 public:
  Streamed(Exchange& exchange, const asio::any_io_executor& executor, const ParsedExec& parsed)
      : exchange_(exchange),
        framer_(parsed.lines),
        cap_(parsed.max_output_bytes.value_or(UINT64_MAX)),
        executor_(executor),
        free_(executor),
        silence_(executor) {}

  asio::awaitable<void> started(const ExecAnswer& so_far) override {
    exchange_.check_admitted();
    exchange_.memory.add(framer_.most_bytes());
    so_far_ = so_far;
    start_ = start_event(so_far) + "\n";
    if (alive_) keep_alive();
    co_return;
  }

  asio::awaitable<void> bytes(bool error, std::string_view data) override {
    uint64_t& used = error ? error_bytes_ : out_bytes_;
    data = data.substr(0, std::min<uint64_t>(data.size(), cap_ - used));
    used += data.size();
    framer_.add(error, data);
    if (!start_.empty()) co_await in_turn([&] { return announce(); });
    co_await send_kept(error);
  }
  [[nodiscard]] size_t at_a_time() const override { return framer_.at_a_time(); }

  [[nodiscard]] bool full(bool error) const override { return (error ? error_bytes_ : out_bytes_) >= cap_; }

  // Of what was announced, and refused all the same: the backend took long.
  asio::awaitable<void> end_refused(const std::optional<ApiError>& why) {
    if (why) exchange_.note(*why);
    so_far_.outcome = Outcome::kNotStarted;
    co_await send_exit(exchange_, so_far_, false, why);
  }

  asio::awaitable<void> end(const ExecAnswer& answer) {
    framer_.finish();
    co_await in_turn([&] { return announce(); });
    for (const bool error : {false, true}) co_await send_kept(error);
    const bool truncated = answer.stdout_bytes > out_bytes_ || answer.stderr_bytes > error_bytes_;
    const std::optional<ApiError> none;
    co_await send_exit(exchange_, answer, truncated, none);
  }

  // Announces what was taken, and pings after silence, from now to quiet().
  void keep_alive() {
    alive_ = true;
    silence_.set(start_.empty() ? kPingAfter : kTakenAfter,
                 [this] { asio::co_spawn(executor_, ping(shared_from_this()), asio::detached); });
  }

  // Until no event is on its way.
  asio::awaitable<void> quiet() {
    silence_.cancel();
    alive_ = false;
    co_await free_.until([this] { return !busy_; });
  }

 private:
  static constexpr std::chrono::milliseconds kTakenAfter{150};

  static asio::awaitable<void> ping(std::shared_ptr<Streamed> self) {
    if (!self->alive_) co_return;
    const bool waits = self->start_.empty() && !self->exchange_.begun();
    if (self->busy_ || waits) {
      self->keep_alive();
      co_return;
    }
    try {
      co_await self->in_turn([&self] {
        return self->start_.empty() ? self->exchange_.write("{\"event\":\"ping\"}\n") : self->announce();
      });
      if (self->alive_) self->keep_alive();
    } catch (const ClientGone&) {
      if (self->alive_) self->exchange_.watch_client().kill();
    }
  }

  // The head and the first event, once.
  asio::awaitable<void> announce() {
    if (start_.empty()) co_return;
    if (!exchange_.begun()) co_await exchange_.begin_stream("application/x-ndjson");
    const std::string event = std::exchange(start_, {});
    co_await exchange_.write(event);
  }

  asio::awaitable<void> send_kept(bool error) {
    co_await in_turn([&] { return write_events(exchange_, framer_, error); });
    if (alive_) keep_alive();
  }

  // One writes at a time: the head, stdout, stderr, a ping.
  template <typename Write>
  asio::awaitable<void> in_turn(Write write) {
    co_await free_.until([this] { return !busy_; });
    busy_ = true;
    std::exception_ptr failure;
    try {
      co_await write();
    } catch (...) {
      failure = std::current_exception();
    }
    busy_ = false;
    free_.notify();
    if (failure) std::rethrow_exception(failure);
  }

  Exchange& exchange_;
  EventFramer framer_;
  uint64_t cap_, out_bytes_ = 0, error_bytes_ = 0;
  std::string start_;  // until it is sent
  ExecAnswer so_far_;
  bool busy_ = false;
  asio::any_io_executor executor_;
  Changes free_;
  Alarm silence_;
  bool alive_ = false;
};

// The body's text is gone when this is done; what is kept of it stays held.
Task<ParsedExec> read_exec(App& app, Exchange& exchange) {
  json body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
  ParsedExec parsed = parse_exec(body, app.config.exec, app.config.shell);
  body = nullptr;
  parsed.spec.tenant = exchange.principal.tenant;
  parsed.spec.agent = agent_of(exchange, app.config.multi_agent, parsed.agent_in_body, parsed.agent_in_env);
  parsed.spec.request_id = exchange.request_id;
  if (parsed.stdin_text) {
    exchange.memory.hold(parsed.spec.bytes() + parsed.stdin_text->size());
    std::string bytes = co_await decode_field(app.elsewhere, exchange, "stdin", std::move(*parsed.stdin_text),
                                              parsed.stdin_encoding);
    parsed.stdin_text.reset();
    parsed.spec.stdin_bytes = std::make_shared<const std::string>(std::move(bytes));
  }
  exchange.memory.hold(parsed.spec.bytes());
  co_return parsed;
}

Task<void> handle_exec(App& app, Exchange& exchange) {
  ParsedExec parsed = co_await read_exec(app, exchange);
  if (parsed.long_lived) co_return co_await start_long_exec(app, exchange, std::move(parsed));
  Captured captured(parsed.max_output_bytes.value_or(app.config.exec.max_output_bytes), exchange);
  Killer& killer = exchange.watch_client();
  const ExecAnswer answer = co_await run_exec(app, parsed.spec, captured, killer, exchange.memory);
  const KeptOutput& kept = captured.ended(answer);
  co_await send_answer(exchange, answer, kept);
}

Task<void> handle_exec_stream(App& app, Exchange& exchange) {
  ParsedExec parsed = co_await read_exec(app, exchange);
  const auto stream = std::make_shared<Streamed>(exchange, app.executor, parsed);
  Streamed& streamed = *stream;
  Killer& killer = exchange.watch_client();
  streamed.keep_alive();
  std::exception_ptr failure;
  std::optional<ApiError> refusal;
  std::optional<ExecAnswer> answer;
  try {
    answer = co_await run_exec(app, parsed.spec, streamed, killer, exchange.memory);
  } catch (const ApiError& error) {
    refusal = error;
  } catch (...) {
    failure = std::current_exception();
  }
  co_await streamed.quiet();
  if (failure) std::rethrow_exception(failure);
  if (refusal && !exchange.begun()) throw *refusal;
  if (refusal) co_return co_await streamed.end_refused(refusal);
  co_await streamed.end(*answer);
}

// Both calls know those in the middle, /exec the ones before, /exec-stream the one behind.
constexpr std::array<std::string_view, 20> kExecFields = {
    "background",       "wait_sec",     "stdin_open",    "pty",
    "agent_id",         "argv",         "artifact_dir",  "backend",
    "cgroup",           "command",      "cwd",           "env",
    "max_output_bytes", "merge_stderr", "min_isolation", "stdin",
    "stdin_encoding",   "timeout_sec",  "user",          "lines"};

constexpr Route kExecRoutes[] = {
    {"POST", "/exec", "exec", handle_exec, std::span(kExecFields).first(19)},
    {"POST", "/exec-stream", "execStream", handle_exec_stream, std::span(kExecFields).subspan(4)},
};

}  // namespace

std::span<const Route> exec_routes() { return kExecRoutes; }

}  // namespace isogate::front
