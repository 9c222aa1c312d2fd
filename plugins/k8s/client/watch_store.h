// The input of a Watch, and the last known state of its collection. For watch.cc only.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "plugins/k8s/client/watch.h"

namespace isogate::k8s {

// The lines of a stream, however it is cut.
class WatchLines {
 public:
  WatchLines(size_t most, std::function<void(const std::string&)> take)
      : most_(most), take_(std::move(take)) {}
  // Passes on each line that is complete now, without its end. Throws NetError for one of more than `most`
  // bytes, and what `take` throws.
  void add(std::string_view bytes);

 private:
  const size_t most_;
  const std::function<void(const std::string&)> take_;
  std::string line_;
};

struct WatchEvent {
  std::string type;  // "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"; others are ignored
  Json object;
};
// Throws NetError for an invalid line. Pure.
WatchEvent parse_event(const std::string& line);

// The message of an ERROR. Pure.
NetError error_of(const WatchEvent& event, const std::string& attempt);

// The known objects, and the callbacks when they change. An object without name or uid is a NetError.
class WatchStore {
 public:
  explicit WatchStore(const WatchEvents& events) : events_(events) {}  // borrowed
  // A complete list replaces the known objects. Throws what the callbacks throw.
  void replace(const Json& items);
  void apply(const WatchEvent& event);

 private:
  void put(const Json& object);
  void remove(const Json& object);
  using Key = std::pair<std::string, std::string>;  // namespace, name
  static Key key_of(const Json& object);
  const WatchEvents& events_;
  std::map<Key, Json> known_;
};

}  // namespace isogate::k8s
