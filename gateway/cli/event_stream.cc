#include "gateway/cli/event_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/cli/output.h"
#include "lib/json.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

Error broken(const std::string& what) {
  return {ISOGATE_LOST, 0, "the gateway's response is invalid: " + what};
}

constexpr std::string_view kOutcomes[] = {"exited",     "signaled", "timed_out",  "killed",
                                          "oom_killed", "unknown",  "not_started"};

bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }

Result<ExecEnd> end_of(const Json& object) {
  ExecEnd end;
  end.outcome = text_at(object, "outcome");
  if (std::ranges::count(kOutcomes, end.outcome) == 0) return broken("the exec has no outcome");
  if (const Json& code = member(object, "exit_code"); code.is_number_integer()) {
    auto number = code.get<int64_t>();
    if (number < 0 || number > 255) return broken("the exit code is " + std::to_string(number));
    end.exit_code = static_cast<int>(number);
  }
  const bool has_none = end.outcome == "unknown" || end.outcome == "not_started";
  if (has_none) end.exit_code.reset();
  if (!has_none && !end.exit_code) return broken("the outcome is " + end.outcome + ", the exit code missing");
  end.signal = text_at(object, "signal");
  end.reason = text_at(object, "reason");
  if (const Json& error = member(object, "error"); error.is_object()) end.reason = text_at(error, "message");
  end.truncated = is_true(member(object, "truncated"));
  if (const Json& duration = member(object, "duration_ms"); duration.is_number())
    end.duration_sec = duration.get<double>() / 1000;
  return end;
}

Result<std::string> bytes_of(const Json& event) {
  const Json& data = member(event, "data");
  if (!data.is_string()) return broken("an output event without data");
  std::string encoding = text_at(event, "encoding");
  if (encoding == "utf-8") return data.get<std::string>();
  if (encoding == "base64") return from_base64(data.get_ref<const std::string&>());
  return broken("an output event in the encoding `" + encoding + "`");
}

uint64_t offset_of(const Json& event) {
  const Json& offset = member(event, "offset");
  return offset.is_number_unsigned() ? offset.get<uint64_t>() : 0;
}

}  // namespace

Result<void> LineSplitter::feed(std::string_view bytes, const Take& take) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    append(bytes.substr(0, end));
    if (line_.ends_with('\r')) line_.pop_back();
    if (auto taken = take(line_, whole_); !taken.ok()) return taken;
    line_.clear();
    whole_ = true;
  }
  append(bytes);
  return {};
}

void LineSplitter::append(std::string_view bytes) {
  whole_ = whole_ && line_.size() + bytes.size() <= longest_;
  if (whole_)
    line_ += bytes;
  else
    std::string().swap(line_);
}

Result<void> ServerEvents::feed(std::string_view bytes) {
  const Error too_long{ISOGATE_LOST, 0,
                       "the gateway sent an event over " + std::to_string(longest_ >> 20) + " MiB"};
  auto fed = lines_.feed(bytes, [&](std::string_view line, bool whole) {
    return whole ? take_line(line) : Result<void>(too_long);
  });
  const bool is_too_long = lines_.in_too_long() || data_.size() > longest_;
  return fed.ok() && is_too_long ? Result<void>(too_long) : fed;
}

Result<void> ServerEvents::take_line(std::string_view line) {
  if (line.empty()) {
    const std::string name = std::exchange(name_, ""), data = std::exchange(data_, "");
    return data.empty() ? Result<void>() : take_(name, data);
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  line.remove_prefix(colon == line.npos ? line.size() : colon + 1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (field == "event") name_ = line;
  if (field == "data") data_.append(data_.empty() ? "" : "\n").append(line);
  return {};
}

std::string ExecEnd::text() const {
  if (outcome == "exited" && exit_code) return outcome + " " + std::to_string(*exit_code);
  return outcome == "signaled" && !signal.empty() ? outcome + " " + signal : outcome;
}

Result<ExecEnd> parse_exec_end(std::string_view json_object) {
  Json object = Json::parse(json_object, nullptr, false);
  if (!object.is_object()) return broken("the ending is not an object");
  return end_of(object);
}

Result<void> EventStream::feed(std::string_view bytes) {
  const Error too_long = broken("a line over 16 MiB");
  auto fed = lines_.feed(bytes, [&](std::string_view line, bool whole) {
    return whole ? take_line(line) : Result<void>(too_long);
  });
  return fed.ok() && lines_.in_too_long() ? Result<void>(too_long) : fed;
}

Result<void> EventStream::take_line(std::string_view line) {
  if (line.empty()) return {};
  if (end_) return broken("an event after the exit event");
  Json event = Json::parse(line, nullptr, false);
  if (!event.is_object()) return broken("a line that is not an object");
  std::string kind = text_at(event, "event");
  if (kind.empty()) return broken("a line that is not an event");
  if (handlers_.line)
    if (auto shown = handlers_.line(line); !shown.ok()) return shown;
  if (kind == "exit") {
    auto end = end_of(event);
    if (!end.ok()) return end.error();
    end_ = *end;
  } else if (kind == "stdout" || kind == "stderr") {
    auto bytes = bytes_of(event);
    if (!bytes.ok()) return bytes.error();
    next_offsets_[kind == "stderr" ? 1 : 0] = offset_of(event) + bytes->size();
    if (handlers_.output)
      return handlers_.output(kind == "stderr", *bytes, is_true(member(event, "partial")));
  }
  return {};
}

Result<std::optional<ExecEnd>> EventStream::pause() {
  if (lines_.in_line()) return broken("it ends inside a line");
  return end_;
}

Result<ExecEnd> EventStream::finish() {
  auto end = pause();
  if (!end.ok()) return end.error();
  if (!*end) return broken("it ends without an exit event");
  return **end;
}

}  // namespace isogate::cli
