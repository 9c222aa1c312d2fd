#include "gateway/front/e2b/watchers.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "gateway/front/base/names.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace asio = boost::asio;
namespace {

using std::chrono::steady_clock;

// Who asks has just written a file: its event is on the way, if behind others.
constexpr std::chrono::milliseconds kSettle{100}, kQuiet{30};
constexpr int kMostWaits = 10;
constexpr size_t kOver = 1024;  // what one that is over takes, beside its events

uint64_t bytes_of(const std::deque<FileEvent>& events) {
  uint64_t bytes = 0;
  for (const FileEvent& event : events) bytes += sizeof event + event.name.size();
  return bytes;
}

// As JSON: a byte of a name is six at most.
uint64_t answer_bytes(const std::deque<FileEvent>& events) {
  constexpr uint64_t kOfOne = 64;
  uint64_t bytes = kOfOne;
  for (const FileEvent& event : events) bytes += kOfOne + 6 * event.name.size();
  return bytes;
}

}  // namespace

void append_events(const FileChange& change, std::deque<FileEvent>& events) {
  const auto add = [&](std::string_view name, std::string_view type) {
    if (is_utf8(name)) events.push_back({std::string(name), type});
  };
  switch (change.type) {
    case ISOGATE_CHANGE_CREATED:  // a file comes whole, or with what was written before it was found
      add(change.path, "EVENT_TYPE_CREATE");
      return change.directory ? void() : add(change.path, "EVENT_TYPE_WRITE");
    case ISOGATE_CHANGE_WRITTEN:
      return add(change.path, "EVENT_TYPE_WRITE");
    case ISOGATE_CHANGE_REMOVED:
      return add(change.path, "EVENT_TYPE_REMOVE");
    case ISOGATE_CHANGE_ATTRIBUTES:
      return add(change.path, "EVENT_TYPE_CHMOD");
    case ISOGATE_CHANGE_RENAMED:
      add(change.from, "EVENT_TYPE_RENAME");
      return add(change.path, "EVENT_TYPE_CREATE");
    default:
      return;
  }
}

ApiError events_lost() {
  return {.code = Code::kOutputDropped,
          .message = "events were lost, because the client did not fetch them in time: list the directory"};
}

ApiError watch_ended() {
  return {.code = Code::kOutputDropped, .message = "the watch has ended: watch again and list the directory"};
}

struct Watchers::Watcher {
  std::string tenant, sandbox;
  std::unique_ptr<Watch> watch;
  std::unique_ptr<Changes> changes;
  std::deque<FileEvent> events;
  size_t bytes = 0;  // of their names
  bool missed = false, over = false, removed = false;
  bool reported = false;  // that it is over: nothing more comes
  steady_clock::time_point asked = steady_clock::now();
  ByteShare memory;
};

Task<std::string> Watchers::add(App& app, Exchange& exchange, FileRequest request) {
  forget([](const Watcher& each) { return each.reported; });
  ByteShare memory(app.memory, exchange.principal.tenant);
  memory.hold(kWatchBytes + kMostBytes);
  auto watch = co_await begin_watch(app, exchange, std::move(request));
  co_return keep(app.executor, exchange.principal.tenant, exchange.agent_param, std::move(watch),
                 std::move(memory));
}

std::string Watchers::keep(const asio::any_io_executor& executor, std::string tenant, std::string sandbox,
                           std::unique_ptr<Watch> watch, ByteShare memory) {
  auto watcher = std::make_shared<Watcher>();
  watcher->tenant = std::move(tenant);
  watcher->sandbox = std::move(sandbox);
  watcher->watch = std::move(watch);
  watcher->changes = std::make_unique<Changes>(executor);
  watcher->memory = std::move(memory);
  const std::string id = new_exec_id();
  all_.emplace(id, watcher);
  asio::co_spawn(executor, follow(watcher), asio::detached);
  return id;
}

Task<void> Watchers::follow(std::shared_ptr<Watcher> watcher) {
  const Watch::Take take = [&](const FileChange& change) {
    watcher->bytes += 2 * (change.path.size() + change.from.size());  // of what may be two events
    if (change.type == ISOGATE_CHANGE_OVERFLOW || watcher->events.size() >= kMostEvents ||
        watcher->bytes > kMostBytes) {
      watcher->missed = true;
    } else {
      append_events(change, watcher->events);
    }
    return true;
  };
  while (!watcher->watch->over() && !watcher->removed) {
    co_await watcher->watch->read(std::chrono::seconds(15), take);
    watcher->changes->notify();
  }
  watcher->over = true;
  // Its events may still be fetched.
  watcher->memory.hold(std::min(watcher->memory.bytes(), kOver + bytes_of(watcher->events)));
  watcher->changes->notify();
}

Task<std::deque<FileEvent>> Watchers::take(Exchange& exchange, const std::string& id) {
  const auto watcher = find(exchange, id);
  watcher->asked = steady_clock::now();
  for (int waits = 0; waits < kMostWaits; ++waits) {
    const size_t before = watcher->events.size();
    const auto came = [&] { return watcher->events.size() != before || watcher->over; };
    co_await watcher->changes->until(came, before == 0 ? kSettle : kQuiet);
    if (!came() || watcher->over) break;
  }
  if (!watcher->missed) exchange.memory.add(answer_bytes(watcher->events));
  watcher->bytes = 0;
  if (std::exchange(watcher->missed, false)) {
    watcher->events.clear();
    throw events_lost();
  }
  watcher->reported = watcher->over && watcher->events.empty();
  if (watcher->reported && watcher->watch->over() != WatchEnd::kRemoved) throw watch_ended();
  co_return std::exchange(watcher->events, {});
}

void Watchers::remove(const Exchange& exchange, const std::string& id) {
  const auto watcher = find(exchange, id);
  watcher->removed = true;
  watcher->watch->end(WatchEnd::kFailed);
  all_.erase(id);
}

std::shared_ptr<Watchers::Watcher> Watchers::find(const Exchange& exchange, const std::string& id) const {
  const auto found = all_.find(id);
  if (found == all_.end() || found->second->tenant != exchange.principal.tenant ||
      found->second->sandbox != exchange.agent_param)
    throw ApiError{.code = Code::kExecNotFound, .message = "there is no watcher `" + printable(id, 80) + "`"};
  return found->second;
}

void Watchers::tick(steady_clock::time_point now) {
  forget([&](const Watcher& each) { return each.asked < now - kForgetAfter; });
}

void Watchers::forget(const std::function<bool(const Watcher&)>& due) {
  std::erase_if(all_, [&](const auto& each) {
    const auto& watcher = each.second;
    if (!due(*watcher)) return false;
    watcher->removed = true;
    watcher->watch->end(WatchEnd::kFailed);
    return true;
  });
}

}  // namespace isogate::front::e2b
