#include "plugins/k8s/watch_store.h"

#include <set>

namespace isogate::k8s {
namespace {

void tell(const std::function<void(const Json&)>& callback, const Json& object) {
  if (callback) callback(object);
}

}  // namespace

std::string metadata_text(const Json& object, const char* field) {
  if (!object.is_object()) return {};
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  const auto found = metadata->find(field);
  return found != metadata->end() && found->is_string() ? found->get<std::string>() : std::string();
}

WatchStore::Key WatchStore::key_of(const Json& object) {
  Key key{metadata_text(object, "namespace"), metadata_text(object, "name")};
  if (key.second.empty())
    throw ApiError(ISOGATE_UNAVAILABLE, "the API server told of an object without name");
  return key;
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
  // The last state comes with the event, but another object's is none of this one.
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
