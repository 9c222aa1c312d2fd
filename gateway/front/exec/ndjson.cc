#include "gateway/front/exec/ndjson.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/text.h"

namespace isogate::front {
namespace {

// Some readers of lines end one at U+0085, U+2028 and U+2029, too.
constexpr std::pair<std::string_view, std::string_view> kLineEnds[] = {
    {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};

// As append_json_string(), in one line for every reader.
void append_json_line(std::string& events, std::string_view text) {
  events.reserve(events.size() + text.size() + 2);
  events += '"';
  std::array<size_t, std::size(kLineEnds)> next{};  // of each of them
  for (size_t i = 0; i < next.size(); ++i) next[i] = text.find(kLineEnds[i].first);
  size_t from = 0;
  for (;;) {
    const auto first = std::ranges::min_element(next);
    if (*first == std::string_view::npos) break;
    const auto& [end, escape] = kLineEnds[first - next.begin()];
    append_json_text(events, text.substr(from, *first - from));
    events += escape;
    from = *first + end.size();
    *first = text.find(end, from);
  }
  append_json_text(events, text.substr(from));
  events += '"';
}

}  // namespace

void EventFramer::event(bool error, std::string_view data, bool partial, std::string& events) {
  events += error ? R"({"event":"stderr",)" : R"({"event":"stdout",)";
  if (offsets_) {
    uint64_t& offset = (*offsets_)[error ? 1 : 0];
    events += "\"offset\":" + std::to_string(offset) + ",";
    offset += data.size();
  }
  events += "\"data\":";
  if (goes_as_text(data)) {
    append_json_line(events, data);
    events += R"(,"encoding":"utf-8")";
  } else {
    events += '"';
    append_base64(events, data);
    events += R"(","encoding":"base64")";
  }
  events += partial ? ",\"partial\":true}\n" : "}\n";
}

bool EventFramer::next(bool error, std::string& events) {
  std::string& held = held_[error ? 1 : 0];
  if (lines_ && next_lines(error, events)) return true;
  if (lines_ && !finished_) return false;
  const size_t whole = finished_ ? held.size() : utf8_boundary(held);
  if (whole > 0) event(error, std::string_view(held).substr(0, whole), false, events);
  held.erase(0, whole);
  return false;
}

bool EventFramer::next_lines(bool error, std::string& events) {
  std::string& held = held_[error ? 1 : 0];
  std::string_view rest = held;
  bool more = true;
  while (more && events.size() < kPart) {
    const size_t end = rest.find('\n');
    if (end != std::string_view::npos && end <= kMaxLine) {
      event(error, rest.substr(0, end), false, events);
      rest.remove_prefix(end + 1);
    } else if (rest.size() > kMaxLine) {
      const size_t cut = utf8_boundary(rest.substr(0, kMaxLine));
      event(error, rest.substr(0, cut), true, events);
      rest.remove_prefix(cut);
    } else {
      more = false;
    }
  }
  held.erase(0, held.size() - rest.size());
  return more;
}

}  // namespace isogate::front
