// Watches whose events an SDK polls instead of following a stream. The front's one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gateway/front/api/files.h"
#include "gateway/front/base/api_error.h"

namespace isogate::front::e2b {

struct FileEvent {
  std::string name;       // below the directory
  std::string_view type;  // EVENT_TYPE_*
};

// What a change is called there; a rename is two events.
void append_events(const FileChange& change, std::deque<FileEvent>& events);

// Why a client has to list the directory: it has not seen all events.
ApiError events_lost();
ApiError watch_ended();

class Watchers {
 public:
  static constexpr size_t kMostEvents = 10000, kMostBytes = 1 << 20;  // that no client has fetched yet
  static constexpr std::chrono::minutes kForgetAfter{30};

  // Begins one; its id. Throws ApiError.
  Task<std::string> add(App& app, Exchange& exchange, FileRequest request);
  // Keeps one of that tenant's sandbox that has begun; its id.
  std::string keep(const boost::asio::any_io_executor& executor, std::string tenant, std::string sandbox,
                   std::unique_ptr<Watch> watch, ByteShare memory);
  // The events since the last call; exchange.memory holds what the answer takes. Throws ApiError: the sandbox
  // has no watch of that id, events were lost, the watch has ended although its directory is there, or the
  // answer has no room: then they stay.
  Task<std::deque<FileEvent>> take(Exchange& exchange, const std::string& id);
  void remove(const Exchange& exchange, const std::string& id);
  // Now and then: forgets those that nobody has asked for since kForgetAfter.
  void tick(std::chrono::steady_clock::time_point now);

 private:
  struct Watcher;
  static Task<void> follow(std::shared_ptr<Watcher> watcher);
  std::shared_ptr<Watcher> find(const Exchange& exchange, const std::string& id) const;
  void forget(const std::function<bool(const Watcher&)>& due);

  std::map<std::string, std::shared_ptr<Watcher>> all_;
};

}  // namespace isogate::front::e2b
