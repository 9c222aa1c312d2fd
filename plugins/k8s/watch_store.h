// What a Watch last knew of its collection, and what is to be told when that changes. For watch.cc alone.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "plugins/k8s/watch.h"

namespace isogate::k8s {

class WatchStore {
 public:
  explicit WatchStore(const WatchEvents& events) : events_(events) {}  // borrowed
  // A whole list took the place of what was known. Throws what the callbacks throw.
  void replace(const Json& items);
  // One event of a watch: ADDED, MODIFIED or DELETED.
  void put(const Json& object);
  void remove(const Json& object);

 private:
  using Key = std::pair<std::string, std::string>;  // namespace, name
  static Key key_of(const Json& object);
  const WatchEvents& events_;
  std::map<Key, Json> known_;
};

// metadata.`field`, or nothing.
std::string metadata_text(const Json& object, const char* field);

}  // namespace isogate::k8s
