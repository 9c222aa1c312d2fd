// A watch of an API server: however it is split it means the same, an added object is deleted once, no two
// objects have the same name at a time, and anything else is an error.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "plugins/k8s/client/object.h"
#include "plugins/k8s/client/watch.h"
#include "tests/fuzz/require.h"
#include "tests/net/scripted.h"

namespace {

using namespace isogate;
using namespace isogate::k8s;

constexpr size_t kLineMost = 2048;

class Follower {
 public:
  // `piece`: how many bytes arrive at once.
  Follower(std::string_view bytes, size_t piece) {
    const Budget budget(std::chrono::seconds(60));
    const std::string answer = "HTTP/1.1 200 OK\r\n\r\n" + std::string(bytes);
    auto connection = std::make_unique<HttpConnection>(std::make_unique<test::Scripted>(answer, piece),
                                                       "server", "the API server");
    try {
      connection->exchange({"GET", "/watch", "", {}}, budget);
      net::HttpLines lines(std::move(connection), kLineMost, "an event is too big");
      while (const auto line = lines.next(budget)) take(*line);
    } catch (const NetError& error) {
      note(error);
    }
  }
  // A new list replaces all of that.
  void list(const Json& items) {
    store_.replace(items);
    std::set<Key> names;
    for (const Json& each : items) names.insert(key_of(each));
    require(there_.size() == names.size());
  }
  [[nodiscard]] const std::string& told() const { return told_; }
  [[nodiscard]] const Json& seen() const { return seen_; }
  [[nodiscard]] bool is_empty() const { return there_.empty(); }

 private:
  using Key = std::pair<std::string, std::string>;
  static Key key_of(const Json& object) {
    return {metadata_text(object, "namespace"), metadata_text(object, "name")};
  }
  void note(const NetError& error) {
    require(error.status() != ISOGATE_OK);
    const std::string why = error.what();
    require(!why.empty() && why.size() < 1000);
    require(std::all_of(why.begin(), why.end(), [](unsigned char c) { return c >= ' '; }));
    told_ += "!" + why + "\n";
  }
  void take(const std::string& line) {
    require(line.size() <= kLineMost && line.find('\n') == std::string::npos);
    if (line.empty()) return;
    const WatchEvent event = parse_event(line);
    require(event.object.is_object());
    if (event.type == "ERROR") {
      const NetError error = error_of(event, "watch");
      require(error.http_status() >= 400 && error.http_status() < 600);
      throw error;
    }
    store_.apply(event);
    if (event.type == "ADDED" || event.type == "MODIFIED" || event.type == "DELETED")
      seen_.push_back(event.object);
  }
  void changed(const Json& object, bool gone) {
    if (gone) return deleted(object);
    const auto there = there_.emplace(key_of(object), uid_of(object)).first;
    require(there->second == uid_of(object));
    told_ += "+" + object.dump() + "\n";
  }
  void deleted(const Json& object) {
    const auto found = there_.find(key_of(object));
    require(found != there_.end() && found->second == uid_of(object));
    there_.erase(found);
    told_ += "-" + object.dump() + "\n";
  }

  std::map<Key, std::string> there_;  // the uids
  std::string told_;
  Json seen_ = Json::array();
  const WatchEvents events_{.changed = [this](const Json& object, bool gone) { changed(object, gone); }};
  WatchStore store_{events_};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Follower whole(bytes, std::max<size_t>(size, 1));
  for (const size_t piece : {1, 7}) require(Follower(bytes, piece).told() == whole.told());
  whole.list(whole.seen());
  whole.list(Json::array());
  require(whole.is_empty());
  return 0;
}
