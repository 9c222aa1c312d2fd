// Follows one collection of the cluster, in its own thread: lists it, then watches it from there with
// bookmarks, lists again when that is no longer possible (410, ERROR) and reconnects, after 0.1 to 10 s,
// when the stream ends or breaks. A silent connection is closed some seconds after `stream_time`.
//
// The callbacks are called by that thread, one at a time; they may use Api, not destroy the Watch. An object
// that disappeared between two watches is reported as deleted once a list does not have it, in its last known
// state. One that was deleted and recreated with the same name is reported as deleted and added, by
// metadata.uid.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "lib/fd.h"
#include "plugins/k8s/client/api.h"

namespace isogate::k8s {

struct WatchEvents {
  // All may be empty. An object was added, changed or deleted.
  std::function<void(const Json&, bool deleted)> changed;
  // Contact was lost; called once with the reason, until `restored`.
  std::function<void(const std::string& why)> lost;
  std::function<void()> restored;
};

struct WatchOptions {
  std::chrono::seconds stream_time{60};  // of one watch request, timeoutSeconds
  std::chrono::seconds slack{10};        // silence beyond it
  std::chrono::milliseconds first_pause{100}, longest_pause{10'000};
  size_t event_most = size_t{4} << 20;  // bytes of one event
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
  void report(const Json& object, bool deleted) const;
  using Key = std::pair<std::string, std::string>;  // namespace, name
  static Key key_of(const Json& object);
  const WatchEvents& events_;
  std::map<Key, Json> known_;
};

class Watch {
 public:
  // `api` is borrowed. `what`: a collection, in one namespace or all.
  Watch(Api& api, Resource what, Selection selection, WatchEvents events, WatchOptions options = {});
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();  // ends the thread, whatever the server does; no callback runs afterwards

 private:
  void run();
  void take_list();
  void follow();
  void hear(const std::string& line);
  void say_lost(const std::string& why);
  void say_restored();

  Api& api_;
  const Resource what_;
  const Selection selection_;
  const WatchEvents events_;
  const WatchOptions options_;
  WatchStore store_{events_};
  const Fd end_;         // an eventfd
  std::string version_;  // empty: a list is needed
  bool is_lost_ = false;
  std::thread thread_;
};

}  // namespace isogate::k8s
