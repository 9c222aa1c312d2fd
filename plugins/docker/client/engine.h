// A client of the Docker Engine API (and of podman's implementation of it). Start here; the backend is
// written on top.
//
// Any thread, concurrently: each call takes a connection from a small pool, or makes one. Every call takes a
// Budget, which bounds connecting, sending and receiving: no caller hangs on a stopped Engine.
//
// Errors are NetError (engine_error.h): ISOGATE_NOT_FOUND for a 404, ISOGATE_UNAVAILABLE when the Engine
// cannot be reached, is late, breaks off, sends an invalid response or a 5xx, or when a name is taken or the
// object's state does not allow it (409), ISOGATE_CANCELLED. maybe_done() reports that it may have happened
// nevertheless. Responses are bounded to 16 MiB. A GET over a connection that turns out dead is repeated once
// on a new one; no other request is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/net/budget.h"
#include "lib/net/http.h"
#include "plugins/docker/client/engine_address.h"
#include "plugins/docker/client/engine_error.h"
#include "plugins/docker/client/engine_stream.h"

namespace isogate::docker {

using net::Budget;
using net::HttpConnection;
using net::HttpHead;
using Json = nlohmann::json;
using ByteSink = std::function<void(std::string_view)>;

struct EngineInfo {
  std::string version;         // "20.10.24+dfsg1"
  std::string api_version;     // as negotiated, "1.41"
  std::string cgroup_version;  // "1" or "2"
  std::string cgroup_driver;   // "cgroupfs", "systemd", "none"
  std::string data_root;       // a directory of its machine; empty: not known
  std::vector<std::string> runtimes, security_options;
  int64_t processors = 0;  // of its machine; 0: not known
  bool podman = false, rootless = false;
  // What it can enforce. Without swap_limit a limit of memory does not bound swap.
  bool memory_limit = false, swap_limit = false, cpu_quota = false, pids_limit = false;
};

struct LabelFilter {
  std::string name, value;  // empty value: any
};

enum class ObjectKind { kContainer, kNetwork, kVolume };  // in the order in which they can be removed
const char* name_of(ObjectKind kind);                     // "container", …

// The events of an Engine, as they happen. One thread at a time.
class EngineEvents {
 public:
  // The body of an answer whose head has been read.
  explicit EngineEvents(std::unique_ptr<HttpConnection> connection);
  // The next one, however long it takes within the budget (Budget::endless is meant for it). Throws
  // ISOGATE_CANCELLED, and ISOGATE_UNAVAILABLE when the stream ends: it is of no further use then.
  Json next(const Budget& budget);

 private:
  net::HttpLines lines_;
};

class Engine {
 public:
  // Versions of the API that this client speaks.
  static constexpr const char* kOldestApi = "1.40";
  static constexpr const char* kNewestApi = "1.47";

  explicit Engine(EngineAddress address) : address_(std::move(address)) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const EngineAddress& address() const { return address_; }
  // Asks every time. A first call does this by itself: the version is negotiated again after contact was
  // lost.
  EngineInfo info(const Budget& budget);
  // Only checks that it responds.
  void ping(const Budget& budget);

  // Objects, by id or name.
  Json inspect(const std::string& id, const Budget& budget, ObjectKind kind = ObjectKind::kContainer);
  // A container is killed first, and its unnamed volumes go with it. One that is removed, or being removed,
  // is an error 404 or 409.
  void remove(const std::string& id, const Budget& budget, ObjectKind kind = ObjectKind::kContainer);
  // The rows of GET /containers/json (also of stopped ones), /networks, /volumes.
  std::vector<Json> list(const std::vector<LabelFilter>& labels, const Budget& budget,
                         ObjectKind kind = ObjectKind::kContainer);

  // Containers, by id or name. `body` as POST /containers/create takes it; the answer is the id. `platform`:
  // which the image has to be of; empty: any.
  std::string create_container(const std::string& name, const Json& body, const Budget& budget,
                               const std::string& platform = {});
  void start(const std::string& id, const Budget& budget);  // also when it runs already
  void kill(const std::string& id, const std::string& signal, const Budget& budget);
  // As inspect(); nothing if there is none.
  std::optional<Json> find(const std::string& id, const Budget& budget);
  void rename(const std::string& id, const std::string& name, const Budget& budget);
  // Until it does not run; its exit code.
  int64_t wait(const std::string& id, const Budget& budget);

  // Exec. The stream has the program's stdin, stdout and stderr as `body` of exec_create attached them.
  std::string exec_create(const std::string& id, const Json& body, const Budget& budget);
  std::unique_ptr<EngineStream> exec_start(const std::string& exec_id, const Budget& budget);

  // Unpacks into directory `path` of the container the tar archive (tar.h) that `produce` gives to its
  // argument, piece by piece. When `produce` throws, the archive is incomplete; files that were unpacked
  // already stay.
  using ArchiveProducer = std::function<void(const ByteSink&)>;
  void put_archive(const std::string& id, const std::string& path, const ArchiveProducer& produce,
                   const Budget& budget);
  // A tar archive of `path`, piece by piece; unbounded. Returns only when it was complete.
  void get_archive(const std::string& id, const std::string& path, const ByteSink& sink,
                   const Budget& budget);

  void create_volume(const std::string& name, const Json& body, const Budget& budget);  // `body` without Name
  std::string create_network(const std::string& name, const Json& body, const Budget& budget);  // its id
  Json inspect_image(const std::string& name, const Budget& budget);

  // `filters` as the API has them: {"type": ["container"], "event": ["die", "oom"], "label": [...]}. `since`:
  // a Unix time with up to nine decimals, empty for now. Events after this has returned are reported; but
  // with podman 4.3 it returns only at the first event.
  std::unique_ptr<EngineEvents> events(const Json& filters, const std::string& since, const Budget& budget);

 private:
  // One call, as the functions above write it down.
  struct Request {
    std::string attempt;  // "start container `x`", for messages
    std::string method, path;
    std::vector<int> good;  // the statuses of success
    std::string body;
    bool upgrade = false;
    ArchiveProducer produce;
    bool versioned = true;
  };
  // An answer with a good status, its body not yet read.
  struct Reply {
    std::unique_ptr<HttpConnection> connection;
    HttpHead head;
  };

  static net::HttpRequest written(const Request& request, const std::string& version);
  Reply open(const Request& request, const Budget& budget);
  std::string text(const Request& request, const Budget& budget);  // the whole body
  Json json(const Request& request, const Budget& budget);         // parsed
  std::string negotiated(const Budget& budget);
  std::string negotiate(const Budget& budget);  // asks, always
  std::unique_ptr<HttpConnection> take(const Budget& budget, bool& reused);
  void give(std::unique_ptr<HttpConnection> connection);
  void forget();  // contact was lost: what follows may be another Engine
  Reply attempt(const Request& request, const Budget& budget);
  void refuse(const Request& request, Reply& reply, const Budget& budget);

  const EngineAddress address_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<HttpConnection>> idle_;
  std::string api_;  // empty: not negotiated yet
  bool podman_ = false;
};

// Where connections go. Reads the files of its TLS each time, so that renewed ones are used.
net::Target target_of(const EngineAddress& address);
// "1.41" as two numbers that can be compared; throws when it is no version.
std::pair<int, int> parse_api_version(const std::string& text);
// An answer's body: an object or an array, nested so little that it can be copied. Anything else throws
// ISOGATE_UNAVAILABLE.
Json parse_answer(std::string_view text, const std::string& attempt);
// The report of GET /info, without the negotiated values.
EngineInfo info_of(const Json& answer);
// The rows of a list whose "Labels" have all of these: podman's lists have what carries any of them.
std::vector<Json> carrying(Json rows, const std::vector<LabelFilter>& labels);

}  // namespace isogate::docker
