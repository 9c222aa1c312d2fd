#include "plugins/k8s/client/watch.h"

#include <algorithm>
#include <set>

#include "lib/json.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

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

void WatchStore::report(const Json& object, bool deleted) const {
  if (events_.changed) events_.changed(object, deleted);
}

void WatchStore::put(const Json& object) {
  const Json before = std::exchange(known_[key_of(object)], object);
  const auto same = [&](const char* field) {
    return metadata_text(before, field) == metadata_text(object, field);
  };
  if (same("uid") && same("resourceVersion")) return;
  if (!before.is_null() && !same("uid")) report(before, true);
  report(object, false);
}

void WatchStore::remove(const Json& object) {
  const auto found = known_.find(key_of(object));
  if (found == known_.end()) return;
  // The event has the last state, unless it is of another object.
  if (metadata_text(found->second, "uid") != metadata_text(object, "uid")) return;
  known_.erase(found);
  report(object, true);
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
    report(gone, true);
  }
  for (const Json& item : items) put(item);
}

void Watch::say_lost(const std::string& why) {
  if (is_lost_) return;
  is_lost_ = true;
  if (events_.lost) events_.lost(why);
}

void Watch::say_restored() {
  if (is_lost_ && events_.restored) events_.restored();
  is_lost_ = false;
}

void Watch::run() {
  constexpr seconds kLongEnough{1};  // after which a failure is not one more in a row
  milliseconds wait = options_.first_pause;
  while (!is_signalled(end_.get())) {
    const auto begin = Budget::Clock::now();
    try {
      if (version_.empty()) take_list();
      follow();
    } catch (const NetError& error) {
      if (error.http_status() == 410) version_.clear();
      if (is_signalled(end_.get())) return;
      if (error.http_status() != 410) say_lost(error.what());
    } catch (const std::exception& error) {
      version_.clear();
      say_lost(error.what());
    }
    if (Budget::Clock::now() - begin >= kLongEnough) wait = options_.first_pause;
    if (is_signalled(end_.get(), wait)) return;
    wait = std::min(2 * wait, options_.longest_pause);
  }
}

void Watch::take_list() {
  const Json list = api_.list(what_, selection_, Budget(Budget::kUsual, end_.get()));
  store_.replace(list["items"]);
  version_ = metadata_text(list, "resourceVersion");
  say_restored();
}

// Until the server ends it.
void Watch::follow() {
  ApiRequest request{.method = "GET", .path = what_.path(), .attempt = "watch " + what_.text()};
  request.query = {{"watch", "true"},
                   {"allowWatchBookmarks", "true"},
                   {"resourceVersion", version_},
                   {"timeoutSeconds", std::to_string(options_.stream_time.count())}};
  if (!selection_.labels.empty()) request.query.emplace_back("labelSelector", selection_.labels);
  if (!selection_.fields.empty()) request.query.emplace_back("fieldSelector", selection_.fields);
  const Budget budget(options_.stream_time + options_.slack, end_.get());
  ApiStream stream = api_.open(request, {}, budget);
  say_restored();
  net::HttpLines lines(std::move(stream.connection), options_.event_most,
                       "the API server sent an event that is too big");
  while (const auto line = lines.next(budget)) hear(*line);
}

void Watch::hear(const std::string& line) {
  if (line.empty()) return;
  const WatchEvent event = parse_event(line);
  if (event.type == "ERROR") {
    version_.clear();
    throw error_of(event, "watch " + what_.text());
  }
  store_.apply(event);
  if (std::string seen = metadata_text(event.object, "resourceVersion"); !seen.empty())
    version_ = std::move(seen);
}

Watch::Watch(Api& api, Resource what, Selection selection, WatchEvents events, WatchOptions options)
    : api_(api),
      what_(std::move(what)),
      selection_(std::move(selection)),
      events_(std::move(events)),
      options_(options),
      end_(or_throw(make_event())) {
  thread_ = start_thread([this] { run(); });
}

Watch::~Watch() {
  signal_event(end_.get());
  thread_.join();
}

}  // namespace isogate::k8s
