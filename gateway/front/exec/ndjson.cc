#include "gateway/front/exec/ndjson.h"

#include "lib/text.h"

namespace isogate::front {

void EventFramer::event(bool error, std::string_view data, bool partial, std::string& events) {
  events += error ? R"({"event":"stderr","data":)" : R"({"event":"stdout","data":)";
  if (goes_as_text(data)) {
    append_json_string(events, data);
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
