#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/base/log.h"
#include "gateway/front/exec.h"
#include "gateway/front/exec_request.h"
#include "gateway/front/handlers.h"
#include "gateway/front/json_answer.h"
#include "gateway/front/json_body.h"
#include "gateway/front/ndjson.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

// Keeps the first `cap` bytes of each stream. They are claimed before the program starts: afterwards it is
// too late to refuse.
class Captured : public Output {
 public:
  Captured(uint64_t cap, MemoryShare& memory) : cap_(cap), memory_(memory) {}
  asio::awaitable<void> started(const ExecAnswer&) override {
    memory_.add(2 * cap_);
    co_return;
  }
  asio::awaitable<void> bytes(bool error, std::string_view data) override {
    std::string& to = error ? standard_error : standard_out;
    to.append(data.substr(0, cap_ - to.size()));
    co_return;
  }
  [[nodiscard]] bool full(bool error) const override {
    return (error ? standard_error : standard_out).size() >= cap_;
  }

  // Gives back what was claimed and not used.
  void ended() { memory_.hold(memory_.bytes() - 2 * cap_ + standard_out.size() + standard_error.size()); }

  std::string standard_out, standard_error;

 private:
  uint64_t cap_;
  MemoryShare& memory_;
};

void append_number(std::string& out, std::string_view key, uint64_t value) {
  out.append(",\"").append(key).append("\":").append(std::to_string(value));
}

void append_ms(std::string& out, std::string_view key, double ms) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), ms, std::chars_format::fixed, 3).ptr;
  out.append(",\"").append(key).append("\":").append(text.data(), end);
}

void append_text(std::string& out, std::string_view key, std::string_view value) {
  out.append(",\"").append(key).append("\":");
  append_json_string(out, value);
}

// As text or as base64, and says which.
Task<void> write_bytes(JsonAnswer& answer, std::string_view name, std::string_view bytes) {
  const bool as_text = goes_as_text(bytes);
  answer.text.append(",\"").append(name).append("\":");
  co_await answer.string(bytes, as_text);
  answer.text.append(",\"").append(name).append(as_text ? "_encoding\":\"utf-8\"" : "_encoding\":\"base64\"");
}

// A cap may have cut a character: what is left of it goes, so that text stays text.
void trim_cut(std::string& kept, uint64_t total) {
  if (kept.size() >= total) return;
  const size_t whole = utf8_boundary(kept);
  if (is_utf8(std::string_view(kept).substr(0, whole))) kept.resize(whole);
}

void append_artifact(std::string& out, const std::string& path, uint64_t size) {
  out += "{\"path\":";
  append_json_string(out, is_utf8(path) ? path : printable(path, 4096));
  append_number(out, "size", size);
  append_text(out, "mime_type", mime_type(path));
  out += '}';
}

Task<void> write_artifacts(JsonAnswer& out, const ExecAnswer& answer) {
  out.text += R"(,"artifacts":[)";
  for (size_t i = 0; i < answer.artifacts.size(); ++i) {
    if (i > 0) out.text += ',';
    append_artifact(out.text, answer.artifact_prefix + answer.artifacts[i].name, answer.artifacts[i].size);
    co_await out.write_if_much();
  }
  out.text += ']';
}

// The fields that say how it ended, without the braces.
Task<void> write_end(JsonAnswer& out, const ExecAnswer& answer, bool truncated) {
  std::string& text = out.text;
  append_text(text, "outcome", answer.outcome);
  text.append(",\"exit_code\":").append(answer.exit_code ? std::to_string(*answer.exit_code) : "null");
  text.append(",\"signal\":");
  if (answer.signal == 0) {
    text += "null";
  } else {
    append_json_string(text, signal_name(answer.signal));
  }
  append_number(text, "stdout_bytes", answer.stdout_bytes);
  append_number(text, "stderr_bytes", answer.stderr_bytes);
  text += truncated ? ",\"truncated\":true" : ",\"truncated\":false";
  append_ms(text, "duration_ms", answer.duration_ms);
  append_ms(text, "cpu_ms", answer.cpu_ms);
  append_number(text, "max_rss_bytes", answer.max_rss_bytes);
  if (answer.left_behind) text += ",\"left_behind\":true";
  co_await write_artifacts(out, answer);
  append_text(text, "backend", answer.backend);
  if (answer.isolation_known) {
    append_text(text, "isolation", isolation_name(answer.isolation));
  } else {
    text += ",\"isolation\":null";
  }
  if (!answer.message.empty()) append_text(text, "reason", answer.message);
}

Task<void> write_answer(JsonAnswer& out, const ExecAnswer& answer, Captured& captured) {
  trim_cut(captured.standard_out, answer.stdout_bytes);
  trim_cut(captured.standard_error, answer.stderr_bytes);
  const bool truncated = captured.standard_out.size() < answer.stdout_bytes ||
                         captured.standard_error.size() < answer.stderr_bytes;
  out.text += "{\"exec_id\":";
  append_json_string(out.text, answer.exec_id);
  co_await write_bytes(out, "stdout", captured.standard_out);
  co_await write_bytes(out, "stderr", captured.standard_error);
  co_await write_end(out, answer, truncated);
  out.text += '}';
}

// The partial result of an exec with which contact was lost, in the error's details.
Task<void> write_unknown(Exchange& exchange, const ExecAnswer& answer, Captured& captured) {
  const ApiError error{
      .code = Code::kOutcomeUnknown,
      .message = "contact with the program was lost, so its outcome is not known: " + answer.message};
  JsonAnswer out(exchange, error.http_status());
  out.text = error.opening();
  co_await write_answer(out, answer, captured);
  out.text += ApiError::closing(exchange.request_id);
  co_await out.end();
}

void log_exec(const Exchange& exchange, const ExecSpec& spec, const ExecAnswer& answer) {
  log::info("exec", {{"request_id", exchange.request_id},
                     {"exec_id", answer.exec_id},
                     {"tenant", spec.tenant},
                     {"agent_id", spec.agent},
                     {"backend", answer.backend},
                     {"outcome", answer.outcome},
                     {"exit_code", answer.exit_code.value_or(-1)},
                     {"ms", answer.duration_ms}});
}

// NDJSON events to the client, one at a time. What they take at the most is claimed before the program
// starts. The status and `start` wait until the backend has taken the call, so that what it refuses is
// answered as for /exec: for the first byte of output, the end, or kTakenAfter without a refusal.
class Streamed : public Output, public std::enable_shared_from_this<Streamed> {
 public:
  Streamed(Exchange& exchange, const asio::any_io_executor& executor, const ParsedExec& parsed)
      : exchange_(exchange),
        framer_(parsed.lines),
        cap_(parsed.max_output_bytes.value_or(UINT64_MAX)),
        free_(executor, std::chrono::steady_clock::time_point::max()),
        silence_(executor) {}

  asio::awaitable<void> started(const ExecAnswer& so_far) override {
    exchange_.memory.add(framer_.most_bytes());
    start_ = "{\"event\":\"start\",\"exec_id\":";
    append_json_string(start_, so_far.exec_id);
    append_text(start_, "backend", so_far.backend);
    append_text(start_, "isolation", isolation_name(so_far.isolation));
    start_ += "}\n";
    if (killer_ != nullptr) keep_alive(*killer_);
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

  asio::awaitable<void> end(const ExecAnswer& answer) {
    framer_.finish();
    co_await in_turn([&] { return announce(); });
    for (const bool error : {false, true}) co_await send_kept(error);
    JsonAnswer last(exchange_);
    last.text += "{\"event\":\"exit\"";
    co_await write_end(last, answer, answer.stdout_bytes > out_bytes_ || answer.stderr_bytes > error_bytes_);
    last.text += "}\n";
    co_await last.end();
  }

  // Announces what was taken, and pings after silence, from now to quiet().
  void keep_alive(Killer& killer) {
    killer_ = &killer;
    silence_.set(start_.empty() ? kPingAfter : kTakenAfter,
                 [this] { asio::co_spawn(free_.get_executor(), ping(shared_from_this()), asio::detached); });
  }

  // Until no event is on its way.
  asio::awaitable<void> quiet() {
    silence_.cancel();
    killer_ = nullptr;
    boost::system::error_code ignored;
    while (busy_) {
      co_await free_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

 private:
  static constexpr std::chrono::milliseconds kPingAfter{15000};
  static constexpr std::chrono::milliseconds kTakenAfter{150};

  static asio::awaitable<void> ping(std::shared_ptr<Streamed> self) {
    if (self->killer_ == nullptr) co_return;
    Killer& killer = *self->killer_;
    const bool waits = self->start_.empty() && !self->exchange_.begun();
    if (self->busy_ || waits) {
      self->keep_alive(killer);
      co_return;
    }
    try {
      if (self->start_.empty()) {
        co_await self->send("{\"event\":\"ping\"}\n");
      } else {
        co_await self->in_turn([&self] { return self->announce(); });
        if (self->killer_ != nullptr) self->keep_alive(killer);
      }
    } catch (const ClientGone&) {
      if (self->killer_ != nullptr) killer.kill();
    }
  }

  // The head and the first event, once.
  asio::awaitable<void> announce() {
    if (start_.empty()) co_return;
    Headers headers;
    headers.emplace_back("X-Accel-Buffering", "no");
    if (!exchange_.begun()) co_await exchange_.begin(200, "application/x-ndjson", std::nullopt, headers);
    const std::string event = std::exchange(start_, {});
    co_await exchange_.write(event);
  }

  // The events of what the framer keeps: made in turn, so that there is one part of them at a time.
  asio::awaitable<void> send_kept(bool error) {
    bool more = true;
    while (more) co_await in_turn([&] { return send_part(error, more); });
    if (killer_ != nullptr) keep_alive(*killer_);
  }

  asio::awaitable<void> send_part(bool error, bool& more) {
    std::string events;
    more = framer_.next(error, events);
    if (!events.empty()) co_await exchange_.write(events);
  }

  asio::awaitable<void> send(std::string events) {
    if (events.empty()) co_return;
    co_await in_turn([&] { return exchange_.write(events); });
    if (killer_ != nullptr) keep_alive(*killer_);
  }

  // One writes at a time: the head, stdout, stderr, a ping.
  template <typename Write>
  asio::awaitable<void> in_turn(Write write) {
    boost::system::error_code ignored;
    while (busy_) {
      co_await free_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    busy_ = true;
    std::exception_ptr failure;
    try {
      co_await write();
    } catch (...) {
      failure = std::current_exception();
    }
    busy_ = false;
    free_.cancel();
    if (failure) std::rethrow_exception(failure);
  }

  Exchange& exchange_;
  EventFramer framer_;
  uint64_t cap_, out_bytes_ = 0, error_bytes_ = 0;
  std::string start_;  // until it is sent
  bool busy_ = false;
  asio::steady_timer free_;
  Alarm silence_;
  Killer* killer_ = nullptr;
};

// The body's text is gone when this is done; what is kept of it stays held.
Task<ParsedExec> read_exec(App& app, Exchange& exchange) {
  nlohmann::json body = co_await read_json_body(app, exchange, app.config.limits.max_json_bytes);
  ParsedExec parsed = parse_exec(app, exchange, body);
  body = nullptr;
  if (parsed.stdin_text) {
    exchange.memory.hold(parsed.spec.bytes() + parsed.stdin_text->size());
    std::string bytes =
        co_await decode_field(app, exchange, "stdin", std::move(*parsed.stdin_text), parsed.stdin_encoding);
    parsed.stdin_text.reset();
    parsed.spec.stdin_bytes = std::make_shared<const std::string>(std::move(bytes));
  }
  exchange.memory.hold(parsed.spec.bytes());
  co_return parsed;
}

}  // namespace

Task<void> handle_exec(App& app, Exchange& exchange) {
  const ParsedExec parsed = co_await read_exec(app, exchange);
  Captured captured(parsed.max_output_bytes.value_or(app.config.exec.max_output_bytes), exchange.memory);
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  const ExecAnswer answer = co_await run_exec(app, parsed.spec, captured, killer, exchange.memory);
  captured.ended();
  log_exec(exchange, parsed.spec, answer);
  if (answer.outcome == "unknown") co_return co_await write_unknown(exchange, answer, captured);
  JsonAnswer out(exchange);
  co_await write_answer(out, answer, captured);
  out.text += '\n';
  co_await out.end();
}

Task<void> handle_exec_stream(App& app, Exchange& exchange) {
  const ParsedExec parsed = co_await read_exec(app, exchange);
  const auto stream = std::make_shared<Streamed>(exchange, app.executor, parsed);
  Streamed& streamed = *stream;
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  streamed.keep_alive(killer);
  std::exception_ptr failure;
  std::optional<ExecAnswer> answer;
  try {
    answer = co_await run_exec(app, parsed.spec, streamed, killer, exchange.memory);
  } catch (...) {
    failure = std::current_exception();
  }
  co_await streamed.quiet();
  if (failure) std::rethrow_exception(failure);
  log_exec(exchange, parsed.spec, *answer);
  co_await streamed.end(*answer);
}

}  // namespace isogate::front
