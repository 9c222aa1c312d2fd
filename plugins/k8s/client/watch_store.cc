#include "plugins/k8s/client/watch_store.h"

#include <algorithm>
#include <set>

#include "lib/json.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

void tell(const std::function<void(const Json&)>& callback, const Json& object) {
  if (callback) callback(object);
}

}  // namespace

void WatchLines::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    if (line_.size() + end > most_)
      throw NetError(ISOGATE_UNAVAILABLE, "the API server sent an event that is too big");
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) return;
    bytes.remove_prefix(end + 1);
    take_(std::exchange(line_, {}));
  }
}

WatchEvent parse_event(const std::string& line) {
  Json event = parse_shallow(line);
  if (!member(event, "object").is_object())
    throw NetError(ISOGATE_UNAVAILABLE, "the API server sent an event that is no JSON");
  return {text_at(event, "type"), std::move(event["object"])};
}

NetError error_of(const WatchEvent& event, const std::string& attempt) {
  const Json& code = member(event.object, "code");
  const uint64_t number = code.is_number_integer() ? code.get<uint64_t>() : 0;
  return refusal(attempt, number >= 400 && number < 600 ? static_cast<int>(number) : 500,
                 event.object.dump());
}

WatchStore::Key WatchStore::key_of(const Json& object) {
  Key key{metadata_text(object, "namespace"), metadata_text(object, "name")};
  if (key.second.empty()) throw NetError(ISOGATE_UNAVAILABLE, "the API server sent an object without name");
  (void)uid_of(object);
  return key;
}

void WatchStore::apply(const WatchEvent& event) {
  if (event.type == "ADDED" || event.type == "MODIFIED") put(event.object);
  if (event.type == "DELETED") remove(event.object);
}

void WatchStore::put(const Json& object) {
  const Key key = key_of(object);
  const auto found = known_.find(key);
  if (found == known_.end()) {
    tell(events_.added, known_[key] = object);
    return;
  }
  if (metadata_text(found->second, "uid") != metadata_text(object, "uid")) {
    tell(events_.deleted, std::exchange(found->second, object));
    tell(events_.added, object);
    return;
  }
  const bool same =
      metadata_text(found->second, "resourceVersion") == metadata_text(object, "resourceVersion");
  found->second = object;
  if (!same) tell(events_.modified, object);
}

void WatchStore::remove(const Json& object) {
  const auto found = known_.find(key_of(object));
  if (found == known_.end()) return;
  // The event has the last state, unless it is of another object.
  if (metadata_text(found->second, "uid") != metadata_text(object, "uid")) return;
  known_.erase(found);
  tell(events_.deleted, object);
}

void WatchStore::replace(const Json& items) {
  std::set<Key> there;
  for (const Json& item : items) there.insert(key_of(item));
  for (auto each = known_.begin(); each != known_.end();) {
    if (there.contains(each->first)) {
      ++each;
      continue;
    }
    const Json gone = std::move(each->second);
    each = known_.erase(each);
    tell(events_.deleted, gone);
  }
  for (const Json& item : items) put(item);
}

}  // namespace isogate::k8s
