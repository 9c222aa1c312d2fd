#include "gateway/front/api/exec_json.h"

#include <array>
#include <charconv>

#include "gateway/front/api/mime.h"
#include "lib/capabilities.h"
#include "lib/text.h"

namespace isogate::front {

void append_number(std::string& out, std::string_view key, uint64_t value) {
  out.append(",\"").append(key).append("\":").append(std::to_string(value));
}

void append_text(std::string& out, std::string_view key, std::string_view value) {
  out.append(",\"").append(key).append("\":");
  append_json_string(out, value);
}

namespace {

void append_ms(std::string& out, std::string_view key, double ms) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), ms, std::chars_format::fixed, 3).ptr;
  out.append(",\"").append(key).append("\":").append(text.data(), end);
}

// As text or as base64, with a member that names which.
Task<void> write_bytes(JsonAnswer& answer, std::string_view name, std::string_view bytes) {
  const TextJudge judge = co_await judge_text(bytes);
  const bool as_text = judge.as_text();
  answer.text.append(",\"").append(name).append("\":");
  co_await answer.string(bytes, as_text);
  answer.text.append(",\"").append(name).append(as_text ? "_encoding\":\"utf-8\"" : "_encoding\":\"base64\"");
}

void append_artifact(std::string& out, const std::string& path, uint64_t size) {
  out += "{\"path\":";
  append_json_string(out, is_utf8(path) ? path : printable(path, 4096));
  append_number(out, "size", size);
  append_text(out, "mime_type", mime_type(path));
  out += '}';
}

}  // namespace

void append_end(std::string& text, const ExecAnswer& answer, bool truncated) {
  append_text(text, "outcome", outcome_name(answer.outcome));
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
  append_text(text, "backend", answer.backend);
  if (answer.isolation_known) {
    append_text(text, "isolation", isolation_name(answer.isolation));
  } else {
    text += ",\"isolation\":null";
  }
  if (!answer.reason.empty()) append_text(text, "reason", answer.reason);
}

void append_not_started(std::string& out, const std::optional<ApiError>& why) {
  if (!why) return;
  out += ",\"error\":{\"code\":";
  append_json_string(out, why->code_text());
  append_text(out, "message", why->message);
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

namespace {

Task<void> write_end(JsonAnswer& out, const ExecAnswer& answer, bool truncated) {
  append_end(out.text, answer, truncated);
  co_await write_artifacts(out, answer);
}

Task<void> write_answer(JsonAnswer& to, const ExecAnswer& answer, const KeptOutput& kept) {
  const bool truncated = kept.out.size() < answer.stdout_bytes || kept.error.size() < answer.stderr_bytes;
  to.text += "{\"exec_id\":";
  append_json_string(to.text, answer.exec_id);
  co_await write_bytes(to, "stdout", kept.out);
  co_await write_bytes(to, "stderr", kept.error);
  co_await write_end(to, answer, truncated);
  to.text += '}';
}

Task<void> write_unknown(Exchange& exchange, const ExecAnswer& answer, const KeptOutput& kept) {
  const ApiError error{
      .code = Code::kOutcomeUnknown,
      .message = "contact with the program was lost, so its outcome is not known: " + answer.reason};
  exchange.note(error);
  JsonAnswer out(exchange, error.http_status());
  out.text = error.opening();
  co_await write_answer(out, answer, kept);
  out.text += ApiError::closing(exchange.request_id);
  co_await out.end();
}

}  // namespace

Task<void> send_answer(Exchange& exchange, const ExecAnswer& answer, const KeptOutput& kept) {
  if (answer.outcome == Outcome::kUnknown) co_return co_await write_unknown(exchange, answer, kept);
  JsonAnswer out(exchange);
  co_await write_answer(out, answer, kept);
  out.text += '\n';
  co_await out.end();
}

std::string start_event(const ExecAnswer& so_far) {
  std::string text = "{\"event\":\"start\",\"exec_id\":";
  append_json_string(text, so_far.exec_id);
  append_text(text, "backend", so_far.backend);
  append_text(text, "isolation", isolation_name(so_far.isolation));
  return text + "}";
}

Task<void> write_events(Exchange& exchange, EventFramer& framer, bool error) {
  for (bool more = true; more;) {
    std::string events;
    more = framer.next(error, events);
    if (!events.empty()) co_await exchange.write(events);
  }
}

Task<void> send_exit(Exchange& exchange, const ExecAnswer& answer, bool truncated,
                     const std::optional<ApiError>& not_started) {
  JsonAnswer last(exchange);
  last.text += "{\"event\":\"exit\"";
  co_await write_end(last, answer, truncated);
  append_not_started(last.text, not_started);
  last.text += "}\n";
  co_await last.end();
}

void trim_cut_end(std::string& kept) {
  const size_t whole = utf8_boundary(kept);
  if (is_utf8(std::string_view(kept).substr(0, whole))) kept.resize(whole);
}

void trim_cut_beginning(std::string& kept) {
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(kept[at]) & 0xC0) == 0x80; };
  size_t rest = 0;
  while (rest < std::min<size_t>(3, kept.size()) && continues(rest)) ++rest;
  if (is_utf8(std::string_view(kept).substr(rest))) kept.erase(0, rest);
}

}  // namespace isogate::front
