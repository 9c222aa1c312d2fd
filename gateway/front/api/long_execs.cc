#include "gateway/front/api/long_execs.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "gateway/front/api/attach.h"
#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/exec/long_execs.h"
#include "lib/capabilities.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kFoundWithin{10};  // of a request
constexpr std::chrono::seconds kKilledWithin{30};
constexpr std::chrono::seconds kJournalEvery{1};

std::chrono::nanoseconds seconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

ApiError no_exec() {
  return {.code = Code::kExecNotFound, .message = "there is no such long-lived exec, or it is forgotten"};
}

std::shared_ptr<LongExec> exec_of(const App& app, const Exchange& exchange) {
  auto found = app.long_execs->find(exchange.principal.tenant, exchange.agent_param);
  if (!found) throw no_exec();
  return found;
}

void append_kept(std::string& out, std::string_view key, const KeptStream& stream) {
  out.append(",\"").append(key).append("\":{\"first_offset\":").append(std::to_string(stream.first()));
  append_number(out, "next_offset", stream.next());
  out += '}';
}

void append_state(std::string& out, const LongExec& exec) {
  out += "{\"exec_id\":";
  append_json_string(out, exec.answer().exec_id);
  append_text(out, "agent_id", exec.agent());
  append_text(out, "state", exec.has_result() ? "ended" : "running");
  append_text(out, "command", exec.command());
  append_number(out, "started_ms", static_cast<uint64_t>(exec.answer().started_ms));
  out += exec.pty() ? ",\"pty\":true" : ",\"pty\":false";
  append_text(out, "stdin", exec.input_open() ? "open" : "closed");
  append_kept(out, "stdout", exec.output(false));
  append_kept(out, "stderr", exec.output(true));
  if (exec.has_result()) {
    append_end(out, exec.answer(), is_truncated(exec));
    append_not_started(out, exec.refusal());
  } else {
    append_text(out, "backend", exec.answer().backend);
    append_text(out, "isolation", isolation_name(exec.answer().isolation));
  }
}

Task<void> send_state(Exchange& exchange, const LongExec& exec, unsigned status = 200) {
  JsonAnswer out(exchange, status);
  append_state(out.text, exec);
  if (exec.has_result()) co_await write_artifacts(out, exec.answer());
  out.text += "}\n";
  co_await out.end();
}

// As POST /exec answers that waited for all of it. What the answer takes was claimed before the start.
Task<void> send_result(Exchange& exchange, const LongExec& exec) {
  if (exec.refusal()) throw *exec.refusal();
  KeptOutput kept{exec.output(false).end().text(), exec.output(true).end().text()};
  if (exec.output(false).end().first() > 0) trim_cut_beginning(kept.out);
  if (exec.output(true).end().first() > 0) trim_cut_beginning(kept.error);
  co_await send_answer(exchange, exec.answer(), kept);
}

// Throws ApiError when the journal has none of this tenant.
Task<ExecRow> journaled(App& app, const Exchange& exchange) {
  const auto done = std::make_shared<Event>(app.executor);
  const auto row = std::make_shared<Result<std::optional<ExecRow>>>(std::optional<ExecRow>());
  app.state->find_exec(exchange.agent_param, [executor = app.executor, done, row](auto found) {
    asio::post(executor, [done, row, found = std::move(found)]() mutable {
      *row = std::move(found);
      done->set();
    });
  });
  co_await done->wait();
  if (!*row)
    throw ApiError{.code = Code::kInternal, .message = "the journal cannot be read: " + row->error().message};
  if (!**row || (**row)->tenant != exchange.principal.tenant) throw no_exec();
  co_return std::move(***row);
}

// Of one that the journal knows alone, which does not say when it ends.
Task<void> send_journaled(App& app, Exchange& exchange, std::chrono::nanoseconds wait) {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + wait;
  Killer& client = exchange.watch_client();
  ExecRow found = co_await journaled(app, exchange);
  for (auto left = wait; !found.ended && left > left.zero(); left = until - steady_clock::now()) {
    Event pause(app.executor);
    co_await pause.wait_for(std::min<std::chrono::nanoseconds>(left, kJournalEvery), client);
    if (client.killed()) throw ClientGone{};
    found = co_await journaled(app, exchange);
  }
  nlohmann::ordered_json body = {{"exec_id", found.exec_id},
                                 {"agent_id", nullptr},
                                 {"state", found.ended ? "ended" : "running"},
                                 {"command", found.command},
                                 {"started_ms", found.started_ms},
                                 {"backend", found.backend}};
  if (const auto sandbox = app.sandboxes.records.known(found.sandbox_id))
    body["agent_id"] = sandbox->row.agent_id;
  if (const auto& end = found.ended) {
    body["outcome"] = outcome_name(end->outcome);
    body["exit_code"] = end->exit_code ? nlohmann::ordered_json(*end->exit_code) : nullptr;
    body["signal"] = nullptr;
    if (end->signal != 0) body["signal"] = signal_name(end->signal);
    // Of an unknown one, 0 and 0 are also what nobody counted.
    if (end->outcome != Outcome::kUnknown || end->stdout_bytes != 0 || end->stderr_bytes != 0) {
      body["stdout_bytes"] = end->stdout_bytes;
      body["stderr_bytes"] = end->stderr_bytes;
    }
    body["duration_ms"] = static_cast<uint64_t>(end->duration_ms);
    if (!end->reason.empty()) body["reason"] = end->reason;
  }
  co_await send_json(exchange, std::move(body));
}

// Throws ClientGone when the client leaves first.
Task<void> wait_for_end(Exchange& exchange, const std::shared_ptr<LongExec>& exec,
                        std::chrono::nanoseconds limit) {
  Killer& client = exchange.watch_client();
  co_await exec->at_end().wait_for(limit, client);
  if (client.killed()) throw ClientGone{};
}

ApiError contact_lost(const std::string& what) {
  return {.code = Code::kBackendUnavailable,
          .message = "contact with the exec is lost, and the gateway looks for it: " + what,
          .retry_after_sec = 1};
}

double wait_of(const Exchange& exchange) {
  const auto text = query_parameter(exchange.query, "wait_sec");
  if (!text) return 0;
  const double wait = number_in<double>(*text).value_or(-1);
  if (!(wait >= 0 && wait <= kMostWaitSec))
    throw invalid_request("`wait_sec` must be 0 to " + std::to_string(kMostWaitSec));
  return wait;
}

std::optional<uint64_t> offset_of(const Exchange& exchange, std::string_view name) {
  const auto text = query_parameter(exchange.query, name);
  if (!text) return std::nullopt;
  const auto offset = number_in<uint64_t>(*text);
  if (!offset) throw invalid_request("`" + std::string(name) + "` must be a number of bytes");
  return offset;
}

Offsets offsets_of(const Exchange& exchange) {
  return {offset_of(exchange, "stdout_offset"), offset_of(exchange, "stderr_offset")};
}

Task<void> handle_exec_list(App& app, Exchange& exchange) {
  const auto agent = query_parameter(exchange.query, "agent_id");
  JsonAnswer out(exchange);
  out.text = "{\"execs\":[";
  bool first = true;
  for (const auto& exec : app.long_execs->of(exchange.principal.tenant)) {
    if (agent && exec->agent() != *agent) continue;
    if (!std::exchange(first, false)) out.text += ',';
    append_state(out.text, *exec);
    out.text += '}';
    co_await out.write_if_much();
  }
  out.text += "]}\n";
  co_await out.end();
}

Task<void> handle_get(App& app, Exchange& exchange) {
  const double wait = wait_of(exchange);
  const auto exec = app.long_execs->find(exchange.principal.tenant, exchange.agent_param);
  if (!exec) co_return co_await send_journaled(app, exchange, seconds_of(wait));
  (void)co_await found_in_time(exchange, exec);
  if (wait > 0) co_await wait_for_end(exchange, exec, seconds_of(wait));
  if (wait > 0 && exec->detached()) throw draining();  // it goes on, and its end comes to the next gateway
  co_await send_state(exchange, *exec);
}

Task<void> handle_kill(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  exec->kill();
  co_await wait_for_end(exchange, exec, kKilledWithin);
  if (exec->detached()) throw draining();  // nothing shows that the kill reached it
  if (!exec->ended()) throw contact_lost("it is killed once it is found");
  co_await send_state(exchange, *exec);
}

// Events to the client: what is there, and with `follow` what comes, up to the end.
Task<void> handle_output(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  const bool follow = query_flag(exchange.query, "follow");
  const Offsets from = offsets_of(exchange);
  co_await wait_until_found(exchange, exec, from);
  LongExec::Reader reader(exec, from);
  const std::array<uint64_t, 2> there = {exec->output(false).next(), exec->output(true).next()};
  EventFramer framer(std::array<uint64_t, 2>{reader.at(false), reader.at(true)});
  exchange.memory.add(framer.most_bytes());
  const bool ended = follow || exec->ended();
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [exec] { exec->changes().notify(); });
  co_await exchange.begin_stream("application/x-ndjson");
  for (bool more = true; more;) {
    more = false;
    for (const bool error : {false, true}) {
      const uint64_t left = follow ? SIZE_MAX : there[error ? 1 : 0] - reader.at(error);
      const size_t most = std::min(left, framer.at_a_time());
      const std::string_view part = co_await reader.next(error, most);
      if (part.empty()) continue;
      framer.add(error, part);
      co_await write_events(exchange, framer, error);
      reader.took(error, part.size());
      more = true;
    }
    if (more || !follow || exec->ended()) continue;
    more = true;
    const auto is_news = [&] { return reader.ready() || client.killed(); };
    const bool came = co_await exec->changes().until(is_news, kPingAfter);
    if (client.killed()) throw ClientGone{};
    if (!came) co_await exchange.write("{\"event\":\"ping\"}\n");
  }
  framer.finish();
  for (const bool error : {false, true}) co_await write_events(exchange, framer, error);
  if (!ended || !exec->has_result()) co_return co_await exchange.finish();
  co_await send_exit(exchange, exec->answer(), is_truncated(*exec), exec->refusal());
}

Task<void> handle_stdin(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  const bool close = query_flag(exchange.query, "close");
  LongExec::Writer writer(exec);
  exchange.end_once_unadmitted();
  co_await writer.write_body(exchange);
  if (close) writer.close();
  co_await send_json(exchange);
}

Task<json> read_fields(App& app, Exchange& exchange) {
  co_return co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
}

Task<void> handle_signal(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  exec->send_signal(signal_in(co_await read_fields(app, exchange)));
  co_await send_json(exchange);
}

Task<void> handle_resize(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  const auto [rows, cols] = size_in(co_await read_fields(app, exchange));
  exec->resize(rows, cols);
  co_await send_json(exchange);
}

Task<void> handle_attach(App& app, Exchange& exchange) {
  const auto exec = exec_of(app, exchange);
  const Offsets from = offsets_of(exchange);
  co_await wait_until_found(exchange, exec, from);
  Attachment attached(exec, from, query_flag(exchange.query, "read_only"));
  exchange.memory.hold(attached.most_bytes());
  auto socket = co_await exchange.upgrade(attached.most_message());
  const OnKill on_removal(exchange.unadmitted, [&attached] { attached.end_unadmitted(); });
  co_await attached.run(app.executor, *socket);
}

constexpr std::string_view kListParameters[] = {"agent_id"};
constexpr std::string_view kGetParameters[] = {"wait_sec"};
constexpr std::string_view kOutputParameters[] = {"stdout_offset", "stderr_offset", "follow"};
constexpr std::string_view kStdinParameters[] = {"close"};
constexpr std::string_view kAttachParameters[] = {"stdout_offset", "stderr_offset", "read_only"};
constexpr std::string_view kSignalFields[] = {"signal"};
constexpr std::string_view kResizeFields[] = {"cols", "rows"};

constexpr Route kLongExecRoutes[] = {
    {"GET", "/execs", "listExecs", handle_exec_list, {}, kListParameters},
    {"GET", "/execs/{exec_id}", "getExec", handle_get, {}, kGetParameters},
    {"DELETE", "/execs/{exec_id}", "killExec", handle_kill},
    {"GET", "/execs/{exec_id}/output", "readExecOutput", handle_output, {}, kOutputParameters},
    {"POST", "/execs/{exec_id}/stdin", "writeExecStdin", handle_stdin, {}, kStdinParameters},
    {"POST", "/execs/{exec_id}/signal", "signalExec", handle_signal, kSignalFields},
    {"POST", "/execs/{exec_id}/resize", "resizeExec", handle_resize, kResizeFields},
    {"GET", "/execs/{exec_id}/attach", "attachExec", handle_attach, {}, kAttachParameters},
};

}  // namespace

Task<std::shared_ptr<LongExec>> start_exec(App& app, Exchange& exchange, ExecSpec spec, uint64_t also) {
  exchange.check_admitted();
  ByteShare memory(app.memory, exchange.principal.tenant);
  memory.hold(spec.bytes() + also);
  const auto exec = std::make_shared<LongExec>(app, std::move(spec), std::move(memory));
  asio::co_spawn(app.executor, exec->run(), asio::detached);
  Killer& client = exchange.watch_client();
  const auto give_up = [exec] {
    if (!exec->taken()) exec->kill();
    exec->changes().notify();
  };
  const OnKill on_kill(client, give_up), on_removal(exchange.unadmitted, give_up);
  co_await exec->changes().until([&] { return exec->taken() || exec->ended(); });
  if (!exec->taken()) exchange.check_admitted();
  if (client.killed() && !exec->taken()) throw ClientGone{};
  co_return exec;
}

Task<bool> found_in_time(Exchange& exchange, std::shared_ptr<LongExec> exec, const Offsets& offsets) {
  if (exec->has_up_to(offsets)) co_return true;
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [exec] { exec->changes().notify(); });
  const auto is_news = [&] { return exec->has_up_to(offsets) || client.killed(); };
  co_await exec->changes().until(is_news, kFoundWithin);
  if (client.killed()) throw ClientGone{};
  co_return !exec->looked_for();
}

Task<void> wait_until_found(Exchange& exchange, std::shared_ptr<LongExec> exec, const Offsets& offsets) {
  const bool found = co_await found_in_time(exchange, std::move(exec), offsets);
  if (!found) throw contact_lost("what it has written is not known yet");
}

void keep_exec(App& app, const std::shared_ptr<LongExec>& exec) {
  if (exec->taken()) app.long_execs->add(exec, seconds_of(app.config.exec.keep_ended_sec));
}

Task<void> start_long_exec(App& app, Exchange& exchange, ParsedExec parsed) {
  const uint64_t answer_bytes = parsed.wait_sec > 0 ? 2 * parsed.spec.terms.kept_bytes : 0;
  exchange.memory.hold(answer_bytes);
  const auto exec = co_await start_exec(app, exchange, std::move(parsed.spec));
  keep_exec(app, exec);
  if (parsed.wait_sec > 0) co_await wait_for_end(exchange, exec, seconds_of(parsed.wait_sec));
  if (exec->has_result() && (parsed.wait_sec > 0 || exec->refusal()))
    co_return co_await send_result(exchange, *exec);
  co_await send_state(exchange, *exec, 202);
}

std::span<const Route> long_exec_routes() { return kLongExecRoutes; }

}  // namespace isogate::front
