#include "plugins/k8s/client/watch.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/fd.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/client/watch_store.h"

namespace isogate::k8s {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Watch::Impl {
  Impl(Api& api_, Resource what_, Selection selection_, WatchEvents events_, WatchOptions options_)
      : api(api_),
        what(std::move(what_)),
        selection(std::move(selection_)),
        events(std::move(events_)),
        options(options_),
        store(events),
        end(or_throw(make_event())) {}

  void run();
  void take_list();
  void follow();
  void read(ApiStream& stream, const Budget& budget);
  void hear(const std::string& line);
  void say_lost(const std::string& why);
  void say_restored();

  Api& api;
  const Resource what;
  const Selection selection;
  const WatchEvents events;
  const WatchOptions options;
  WatchStore store;
  const Fd end;
  std::string version;  // empty: a list is needed
  bool is_lost = false;
  std::thread thread;
};

void Watch::Impl::say_lost(const std::string& why) {
  if (is_lost) return;
  is_lost = true;
  if (events.lost) events.lost(why);
}

void Watch::Impl::say_restored() {
  if (is_lost && events.restored) events.restored();
  is_lost = false;
}

void Watch::Impl::run() {
  constexpr seconds kLongEnough{1};  // after which a failure is not one more in a row
  milliseconds wait = options.first_pause;
  while (!is_signalled(end.get())) {
    const auto begin = Budget::Clock::now();
    try {
      if (version.empty()) take_list();
      follow();
    } catch (const NetError& error) {
      if (error.http_status() == 410) version.clear();
      if (is_signalled(end.get())) return;
      if (error.http_status() != 410) say_lost(error.what());
    } catch (const std::exception& error) {
      version.clear();
      say_lost(error.what());
    }
    if (Budget::Clock::now() - begin >= kLongEnough) wait = options.first_pause;
    if (is_signalled(end.get(), wait)) return;
    wait = std::min(2 * wait, options.longest_pause);
  }
}

void Watch::Impl::take_list() {
  const Json list = api.list(what, selection, Budget(Budget::kUsual, end.get()));
  store.replace(list["items"]);
  version = metadata_text(list, "resourceVersion");
  say_restored();
  if (events.synced) events.synced();
}

// Until the server ends it.
void Watch::Impl::follow() {
  ApiRequest request{.method = "GET", .path = what.path(), .attempt = "watch " + what.text()};
  request.query = {{"watch", "true"},
                   {"allowWatchBookmarks", "true"},
                   {"resourceVersion", version},
                   {"timeoutSeconds", std::to_string(options.stream_time.count())}};
  if (!selection.labels.empty()) request.query.emplace_back("labelSelector", selection.labels);
  if (!selection.fields.empty()) request.query.emplace_back("fieldSelector", selection.fields);
  const Budget budget(options.stream_time + options.slack, end.get());
  ApiStream stream = api.open(request, {}, budget);
  say_restored();
  read(stream, budget);
}

void Watch::Impl::read(ApiStream& stream, const Budget& budget) {
  std::array<char, 65536> buffer{};
  WatchLines lines(options.event_most, [this](const std::string& line) { hear(line); });
  while (const size_t got = stream.connection->read_body(buffer.data(), buffer.size(), budget))
    lines.add(std::string_view(buffer.data(), got));
}

void Watch::Impl::hear(const std::string& line) {
  if (line.empty()) return;
  const WatchEvent event = parse_event(line);
  if (event.type == "ERROR") {
    version.clear();
    throw error_of(event, "watch " + what.text());
  }
  store.apply(event);
  if (std::string seen = metadata_text(event.object, "resourceVersion"); !seen.empty())
    version = std::move(seen);
}

Watch::Watch(Api& api, Resource what, Selection selection, WatchEvents events, WatchOptions options)
    : impl_(std::make_unique<Impl>(api, std::move(what), std::move(selection), std::move(events), options)) {
  impl_->thread = start_thread([this] { impl_->run(); });
}

Watch::~Watch() {
  signal_event(impl_->end.get());
  impl_->thread.join();
}

}  // namespace isogate::k8s
