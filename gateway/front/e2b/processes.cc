// process.Process of E2B's envd: programs of a sandbox. Each is a long-lived exec, with a pid made from its
// exec_id.
#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "gateway/front/api/attach.h"
#include "gateway/front/api/execs.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/long_execs.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/e2b/paths.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/rpc.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/e2b/user.h"
#include "gateway/front/exec/long_execs.h"
#include "gateway/front/http/json_answer.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using std::chrono::steady_clock;
using LongExecPtr = std::shared_ptr<LongExec>;

constexpr size_t kPart = 32768;           // of output, in one message
constexpr uint64_t kListed = 128 * 1024;  // of processes, in one part of the answer; a large one takes more
constexpr std::chrono::seconds kWriterWait{10};
constexpr size_t kMostTag = 1000;

// The same after a restart of the gateway. Of an id's 128 random bits 31, never 0.
uint32_t pid_of(const LongExec& exec) {
  uint32_t pid = 0;
  for (const char digit : exec.answer().exec_id.substr(0, 8))
    pid = pid << 4 | static_cast<uint32_t>(hex_value(digit));
  return (pid & 0x7FFFFFFF) | 1;
}

const json& object_in(const json& body, std::string_view name) {
  static const json none = json::object();
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return none;
  if (!found->is_object()) throw invalid_request("`" + std::string(name) + "` must be an object");
  return *found;
}

bool has_pty(const json& body) {
  const auto found = body.find("pty");
  return found != body.end() && !found->is_null();
}

const ProcessInfo* info_of(const App& app, const LongExec& exec) {
  const auto found = app.e2b->processes.find(exec.answer().exec_id);
  return found == app.e2b->processes.end() ? nullptr : &found->second;
}

bool is_of(const LongExec& exec, const Exchange& exchange) {
  return exec.taken() && exec.agent() == exchange.agent_param;
}

// The one that started last, of those that fit.
LongExecPtr process_of(const App& app, const Exchange& exchange, const json& body, bool also_ended = false) {
  const json& selector = object_in(body, "process");
  const auto pid = count_field(selector, "pid", 0, UINT32_MAX);
  const auto tag = text_field(selector, "tag");
  if (pid.has_value() == tag.has_value()) throw invalid_request("`process` must have either `pid` or `tag`");
  LongExecPtr chosen;
  for (const LongExecPtr& exec : app.long_execs->of(exchange.principal.tenant)) {
    if (!is_of(*exec, exchange) || (exec->ended() && !also_ended)) continue;
    const ProcessInfo* info = info_of(app, *exec);
    if (pid ? pid_of(*exec) != *pid : info == nullptr || info->tag != *tag) continue;
    if (!chosen || chosen->answer().started_ms <= exec->answer().started_ms) chosen = exec;
  }
  if (!chosen)
    throw ApiError{.code = Code::kExecNotFound,
                   .message = "there is no process with " +
                              (pid ? "pid " + std::to_string(*pid) : "tag `" + printable(*tag, 80) + "`")};
  return chosen;
}

// Of those that have ended the tag is still asked for; what was said of the rest nobody is told any more.
void forget_processes(App& app) {
  for (auto& [id, info] : app.e2b->processes) {
    const LongExecPtr exec = app.long_execs->find(info.tenant, id);
    if (!exec || exec->ended())
      info = {
          .tenant = exec ? info.tenant : "", .cmd = "", .cwd = "", .tag = info.tag, .args = {}, .env = {}};
  }
  std::erase_if(app.e2b->processes, [](const auto& each) { return each.second.tenant.empty(); });
}

// As Go's os/exec words it, which is what SDKs pass on.
ordered_json end_event(const ExecAnswer& answer) {
  const int code = answer.exit_code.value_or(-1);
  const bool exited = answer.outcome == Outcome::kExited;
  std::string status = "exit status " + std::to_string(code);
  if (!exited) {
    const int signal = answer.signal != 0 ? answer.signal : SIGKILL;
    status = std::string("signal: ") +
             (signal == SIGKILL   ? "killed"
              : signal == SIGTERM ? "terminated"
                                  : signal_name(signal)) +
             (answer.outcome == Outcome::kOomKilled ? " (out of memory)" : "");
  }
  ordered_json end = {{"exitCode", exited ? code : -1}, {"exited", exited}, {"status", status}};
  if (!exited || code != 0) end["error"] = status;
  return {{"event", {{"end", std::move(end)}}}};
}

std::string data_event(const LongExec& exec, bool error, std::string_view bytes) {
  std::string text = R"({"event":{"data":{")";
  text.append(exec.pty() ? "pty" : error ? "stderr" : "stdout").append("\":\"");
  append_base64(text, bytes);
  return text.append("\"}}}");
}

ApiError outcome_error(const LongExec& exec) {
  if (exec.refusal()) return *exec.refusal();
  if (exec.answer().outcome == Outcome::kTimedOut)
    return {.code = Code::kRequestTimeout, .message = "the process was killed: its time was over"};
  return {.code = Code::kOutcomeUnknown,
          .message = "how the process ended is not known: " + exec.answer().reason};
}

ApiError connection_over() {
  return {.code = Code::kRequestTimeout,
          .message = "the time of the connection is over; the process goes on"};
}

bool has_ending(const LongExec& exec) {
  const Outcome outcome = exec.answer().outcome;
  return !exec.refusal() && outcome != Outcome::kTimedOut && outcome != Outcome::kUnknown &&
         outcome != Outcome::kNotStarted;
}

// Its sandbox was, or is just being, deleted under it, and no other end is known.
bool ended_with_sandbox(const App& app, const LongExec& exec) {
  const bool killed = exec.answer().outcome == Outcome::kKilled;
  if ((has_ending(exec) && !killed) || exec.answer().outcome == Outcome::kTimedOut) return false;
  const auto sandbox = app.sandboxes.records.known(exec.tenant(), exec.agent());
  if (!sandbox || !sandbox->closing) return !sandbox || (sandbox->changing && killed);
  return *sandbox->closing == ISOGATE_CLOSE_PURGE;
}

// Until the process ends. It goes on where its client leaves, or `until` comes first.
Task<void> follow(const App& app, Exchange& exchange, LongExecPtr exec, const Offsets& from,
                  steady_clock::time_point until = steady_clock::time_point::max()) {
  const auto interval = keepalive_interval(exchange);
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [exec] { exec->changes().notify(); });
  MessageStream stream(exchange);
  LongExec::Reader reader(exec, from);
  co_await stream.begin();
  co_await stream.write(R"({"event":{"start":{"pid":)" + std::to_string(pid_of(*exec)) + "}}}");
  std::optional<ApiError> failure;
  try {
    for (;;) {
      const auto left = until - steady_clock::now();
      if (left <= left.zero()) throw connection_over();
      bool sent = false;
      for (const bool error : {false, true}) {
        const std::string_view part = co_await reader.next(error, kPart);
        if (part.empty()) continue;
        const std::string event = data_event(*exec, error, part);
        co_await stream.write(event);
        reader.took(error, part.size());
        sent = true;
      }
      if (sent) continue;
      if (exec->ended()) break;
      const auto is_news = [&] { return reader.ready() || client.killed(); };
      const auto wait = std::min<std::chrono::nanoseconds>(interval, left);
      const bool came = co_await exec->changes().until(is_news, wait);
      if (client.killed()) throw ClientGone{};
      if (!came) co_await stream.write(R"({"event":{"keepalive":{}}})");
    }
    if (ended_with_sandbox(app, *exec)) {
      failure = sandbox_is_gone();
    } else if (exec->detached() && !has_ending(*exec)) {  // it goes on: the next gateway has it
      failure = draining();
    } else if (!has_ending(*exec)) {
      failure = outcome_error(*exec);
    }
  } catch (const ApiError& error) {
    failure = error;
  }
  if (failure) co_return co_await stream.fail(*failure);
  co_await stream.write(json_text(end_event(exec->answer())));
  co_await stream.end();
}

// The request as POST /exec has it, for its checks.
json exec_body(const App& app, const Exchange& exchange, const json& body, const Record& record,
               ProcessInfo& info) {
  const json& process = object_in(body, "process");
  info.cmd = text_field(process, "cmd").value_or("");
  if (info.cmd.empty()) throw invalid_request("`process.cmd` is missing");
  json argv = json::array({info.cmd});
  if (const auto args = process.find("args"); args != process.end() && !args->is_null()) {
    if (!args->is_array()) throw invalid_request("`process.args` must be an array of strings");
    for (const json& each : *args) {
      if (!each.is_string()) throw invalid_request("`process.args` must be an array of strings");
      info.args.push_back(each.get<std::string>());
      argv.push_back(each);
    }
  }
  json env = {{"E2B_SANDBOX", "true"},
              {"E2B_SANDBOX_ID", exchange.agent_param},
              {"E2B_TEMPLATE_ID", record.template_id}};
  env.update(json(record.env));
  const json& envs = object_in(process, "envs");
  for (const json& each : envs)
    if (!each.is_string()) throw invalid_request("`process.envs` must be an object of strings");
  info.env = envs.get<Pairs>();
  env.update(envs);
  info.cwd = text_field(process, "cwd").value_or("");
  info.tag = text_field(body, "tag").value_or("");
  if (info.tag.size() > kMostTag)
    throw invalid_request("`tag` is longer than " + std::to_string(kMostTag) + " bytes");
  info.tenant = exchange.principal.tenant;
  const Place place = place_of(info.cwd, record.home);
  if (record.home == kHome) {  // a shell calls its directory as PWD does, when that leads there
    env.emplace("HOME", record.home);
    env.emplace("PWD", place.shown);
  }
  json request = {{"argv", std::move(argv)}, {"env", std::move(env)}, {"background", true}};
  if (!info.cwd.empty()) request["cwd"] = place.path;
  if (const std::string user = user_of(app.config, exchange); !user.empty()) request["user"] = user;
  request["stdin_open"] = bool_field(body, "stdin").value_or(true);
  if (const json& size = object_in(object_in(body, "pty"), "size"); has_pty(body))
    request["pty"] = {{"cols", count_field(size, "cols", 1, kMostCells).value_or(80)},
                      {"rows", count_field(size, "rows", 1, kMostCells).value_or(24)}};
  const double most = app.config.exec.max_background_sec;
  const auto timeout = rpc_timeout(exchange);
  if (timeout && timeout->count() > 0)
    request["timeout_sec"] = std::min(most, static_cast<double>(timeout->count()) / 1000);
  return request;
}

Task<LongExecPtr> start_process(App& app, Exchange& exchange) {
  const json body = co_await read_first_message(app, exchange);
  const Found found = find_sandbox(app, exchange.principal.tenant, exchange.agent_param);
  ProcessInfo info;
  json request = exec_body(app, exchange, body, found.record, info);
  ParsedExec parsed = parse_exec(request, app.config.exec, app.config.shell);
  parsed.spec.tenant = exchange.principal.tenant;
  parsed.spec.agent = exchange.agent_param;
  parsed.spec.request_id = exchange.request_id;
  parsed.spec.existing = true;                  // one that is being ended must not come back as another
  const uint64_t listed = parsed.spec.bytes();  // what List says of it
  const auto exec = co_await start_exec(app, exchange, std::move(parsed.spec), listed);
  keep_exec(app, exec);
  if (exec->taken()) {
    forget_processes(app);
    app.e2b->processes.insert_or_assign(exec->answer().exec_id, std::move(info));
  }
  if (exec->refusal() && exec->refusal()->code == Code::kSandboxNotFound) throw sandbox_is_gone();
  if (exec->refusal()) throw *exec->refusal();
  co_return exec;
}

Task<void> handle_start(App& app, Exchange& exchange) {
  LongExecPtr exec = co_await start_process(app, exchange);
  co_await follow(app, exchange, std::move(exec), {});
}

// Of one that runs, what comes from now on; of one that has ended, how.
Task<void> handle_connect_process(App& app, Exchange& exchange) {
  LongExecPtr exec = process_of(app, exchange, co_await read_first_message(app, exchange), true);
  co_await wait_until_found(exchange, exec);
  const Offsets from = {exec->output(false).next(), exec->output(true).next()};
  co_await follow(app, exchange, std::move(exec), from, rpc_deadline(exchange));
}

ordered_json process_json(const App& app, const LongExec& exec) {
  ordered_json config = {{"cmd", exec.command()}, {"args", json::array()}, {"envs", json::object()}};
  ordered_json process = {{"pid", pid_of(exec)}};
  if (const ProcessInfo* info = info_of(app, exec)) {
    config["cmd"] = info->cmd;
    config["args"] = info->args;
    config["envs"] = info->env;
    if (!info->cwd.empty()) config["cwd"] = info->cwd;
    if (!info->tag.empty()) process["tag"] = info->tag;
  }
  process["config"] = std::move(config);
  return process;
}

Task<void> handle_processes(App& app, Exchange& exchange) {
  (void)co_await read_message(app, exchange);
  exchange.memory.hold(kListed);  // while a refusal can still be sent
  JsonAnswer out(exchange);
  out.text = "{\"processes\":[";
  bool first = true;
  for (const LongExecPtr& exec : app.long_execs->of(exchange.principal.tenant)) {
    if (!is_of(*exec, exchange) || exec->ended()) continue;
    if (!std::exchange(first, false)) out.text += ',';
    out.text += json_text(process_json(app, *exec));
    exchange.memory.hold(std::max<uint64_t>(kListed, out.text.size()));
    co_await out.write_if_much();
  }
  out.text += "]}";
  co_await out.end();
}

// Another client may be writing.
Task<std::unique_ptr<LongExec::Writer>> writer_to(LongExecPtr exec) {
  std::unique_ptr<LongExec::Writer> writer;
  std::optional<ApiError> busy;
  const auto attempt = [&] {
    try {
      writer = std::make_unique<LongExec::Writer>(exec);
      return true;
    } catch (const ApiError& error) {
      if (error.code != Code::kAlreadyAttached) throw;
      busy = error;
      return false;
    }
  };
  if (!co_await exec->changes().until(attempt, kWriterWait)) throw *busy;
  co_return writer;
}

// Until the program has room for all of it, or the client leaves: others may want to write.
Task<void> write_input(App& app, Exchange& exchange, LongExecPtr exec, const json& input) {
  exchange.end_once_unadmitted();
  if (!exec->ended() && !exec->input_open())
    throw invalid_request("the process takes no input: it was started without stdin, or its stdin is closed");
  auto text = text_field(input, exec->pty() ? "pty" : "stdin");
  if (!text)
    throw invalid_request(exec->pty() ? "the process has a terminal: send `input.pty`"
                                      : "send `input.stdin`");
  const std::string bytes =
      co_await decode_field(app.elsewhere, exchange, "input", std::move(*text), "base64");
  const auto writer = co_await writer_to(exec);
  const OnKill on_kill(exchange.watch_client(), [&writer] { writer->cancel(); });
  co_await writer->write(bytes);
}

Task<void> handle_input(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  const LongExecPtr exec = process_of(app, exchange, body);
  co_await write_input(app, exchange, exec, object_in(body, "input"));
  co_await send_json(exchange);
}

// Its end leaves stdin open.
Task<void> handle_stream_input(App& app, Exchange& exchange) {
  MessageReader messages = messages_of(app, exchange);
  LongExecPtr exec;
  while (const auto message = co_await messages.next()) {
    if (const json& start = object_in(*message, "start"); !start.empty())
      exec = process_of(app, exchange, start);
    const json& data = object_in(*message, "data");
    if (data.empty()) continue;
    if (!exec) throw invalid_request("the stream's first message must have `start`");
    co_await write_input(app, exchange, exec, object_in(data, "input"));
  }
  MessageStream stream(exchange);
  co_await stream.begin();
  co_await stream.write("{}");
  co_await stream.end();
}

Task<void> handle_close_stdin(App& app, Exchange& exchange) {
  const LongExecPtr exec = process_of(app, exchange, co_await read_message(app, exchange));
  if (exec->input_open()) (co_await writer_to(exec))->close();
  co_await send_json(exchange);
}

int signal_of(const json& body) {
  const auto found = body.find("signal");
  if (found != body.end() && (*found == "SIGNAL_SIGKILL" || *found == SIGKILL)) return SIGKILL;
  if (found != body.end() && (*found == "SIGNAL_SIGTERM" || *found == SIGTERM)) return SIGTERM;
  throw invalid_request("`signal` must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
}

Task<void> handle_signal(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  const LongExecPtr exec = process_of(app, exchange, body);
  if (signal_of(body) == SIGKILL) {
    exec->kill();
  } else {
    exec->send_signal(SIGTERM);
  }
  co_await send_json(exchange);
}

Task<void> handle_update(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  const LongExecPtr exec = process_of(app, exchange, body);
  if (has_pty(body)) {
    const auto [rows, cols] = size_in(object_in(object_in(body, "pty"), "size"));
    exec->resize(rows, cols);
  }
  co_await send_json(exchange);
}

constexpr Route kProcessRoutes[] = {
    {"POST", "/process.Process/Start", "e2bStart", streaming<handle_start>},
    {"POST", "/process.Process/Connect", "e2bConnect", streaming<handle_connect_process>},
    {"POST", "/process.Process/List", "e2bList", handle_processes},
    {"POST", "/process.Process/SendInput", "e2bSendInput", handle_input},
    {"POST", "/process.Process/StreamInput", "e2bStreamInput", streaming<handle_stream_input>},
    {"POST", "/process.Process/CloseStdin", "e2bCloseStdin", handle_close_stdin},
    {"POST", "/process.Process/SendSignal", "e2bSendSignal", handle_signal},
    {"POST", "/process.Process/Update", "e2bUpdate", handle_update},
};

}  // namespace

std::span<const Route> process_routes() { return kProcessRoutes; }

}  // namespace isogate::front::e2b
