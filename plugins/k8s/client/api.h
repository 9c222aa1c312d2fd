// A client of the Kubernetes API. Start here; watch.h and exec_channel.h are written on top of it.
//
// Any thread, concurrently: each call takes a connection from a small pool, or makes one. Every call takes a
// Budget, which bounds waiting for its turn, connecting, sending and receiving: no caller hangs on a silent
// server.
//
// Errors are thrown as NetError: the API server's Status (api_error.h), ISOGATE_UNAVAILABLE when it cannot
// be reached, is late, breaks off or sends an invalid response (maybe_done() reports that it may have
// happened), ISOGATE_CANCELLED.
//
// Requests are repeated at most five times, within the budget: after a 401 once, with newer credentials if
// there are any; after a 429, whatever the method, because nothing was done; after a 503 with Retry-After,
// and over a kept connection that turned out dead, only GET and DELETE, which may be done twice. No other
// request is repeated; an upgrade only after a 401.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/http.h"
#include "plugins/k8s/client/access.h"
#include "plugins/k8s/client/api_error.h"

namespace isogate::k8s {

using Json = nlohmann::json;
using Query = std::vector<std::pair<std::string, std::string>>;

using net::HttpConnection;
using net::HttpHead;

// A resource, or a collection where `name` is empty. Names are checked, so they may come from anywhere.
struct Resource {
  std::string group_version;  // "v1", "apps/v1", "coordination.k8s.io/v1"
  std::string name_space;     // empty: of the cluster, or all of them
  std::string plural;         // "pods"
  std::string name = {};
  std::string subresource = {};  // "exec", "status"

  // "/api/v1/namespaces/x/pods/y"; throws ISOGATE_INVALID_ARGUMENT for an impossible name.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string text() const;  // "pods/exec `x/y`", for messages
};

struct ApiLimits {
  // Of all requests but those of open(); 0: any number. A gateway that ends stops a thousand sandboxes in its
  // time; a server that is busy answers 429.
  double qps = 400, burst = 800;
  size_t answer_most = size_t{16} << 20;
  size_t kept_most = 8;  // connections without work
};

struct ApiRequest {
  std::string method, path;  // path as Resource::path() gives it
  Query query = {};          // not yet encoded
  std::string body = {};     // JSON
  std::string attempt = {};  // "create pod `x`", for messages
  std::string name = {};     // of the object: only a 404 that names it means that it is missing
};

struct Selection {
  std::string labels = {}, fields = {};  // as in labelSelector and fieldSelector
  size_t page = 500;                     // asked for at once
};

// A streamed answer with a good status, its body not yet read; for watch.h and exec_channel.h.
struct ApiStream {
  std::unique_ptr<HttpConnection> connection;
  HttpHead head;
  Identity identity;  // which was shown
};

// A token bucket for requests: `qps` of them a second, `burst` at once. Any thread.
class RateLimit {
 public:
  RateLimit(double qps, double burst);  // qps 0: any number
  // Waits for its turn, in the order of the calls. Throws NetError when the turn would come after the
  // budget's end, or the budget was cancelled; the turn is returned.
  void take(const Budget& budget);

 private:
  const double qps_, burst_;
  std::mutex mutex_;
  double tokens_;
  Budget::Clock::time_point then_;
};

class Api {
 public:
  explicit Api(ClusterAccess access, ApiLimits limits = {});
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  [[nodiscard]] const ClusterAccess& access() const { return access_; }

  // The answer's JSON of any 2xx, null where there is none.
  Json call(const ApiRequest& request, const Budget& budget);

  Json get(const Resource& what, const Budget& budget);
  // The same; nothing if there is none.
  std::optional<Json> find(const Resource& what, const Budget& budget);
  // `body` with its metadata.name, or generateName; `what` without name unless with a subresource (eviction).
  // `query`: for example {{"dryRun", "All"}}.
  Json create(const Resource& what, const Json& body, const Budget& budget, const Query& query = {});
  // With metadata.resourceVersion in `body`, a concurrent change is an error, reason() "Conflict".
  Json replace(const Resource& what, const Json& body, const Budget& budget);
  // `options`: {{"gracePeriodSeconds", 0}, {"propagationPolicy", "Background"}, {"preconditions",
  // {{"uid", …}}}}. A missing object is ISOGATE_NOT_FOUND, another uid reason()
  // "Conflict"; a collection, `what` without name, is ISOGATE_INVALID_ARGUMENT.
  Json remove(const Resource& what, const Json& options, const Budget& budget);
  // All pages as one: {"metadata": {"resourceVersion": …}, "items": […]}. Bounded to 64 MiB together.
  Json list(const Resource& what, const Selection& selection, const Budget& budget);

  // A separate connection, not counted by the rate; `upgrade`: a WebSocket's headers, and 101 is the
  // good status.
  ApiStream open(const ApiRequest& request, const Query& upgrade, const Budget& budget) {
    return send(request, upgrade, false, budget);
  }

 private:
  struct Kept {
    std::unique_ptr<HttpConnection> connection;
    std::string certificate;  // which it was made with
  };

  ApiStream send(const ApiRequest& request, const Query& upgrade, bool counted, const Budget& budget);
  std::string text(const ApiRequest& request, const Budget& budget);  // the whole body
  std::unique_ptr<HttpConnection> take_kept(const Identity& identity);
  std::unique_ptr<HttpConnection> connect(const Identity& identity, const Budget& budget) const;
  std::unique_ptr<HttpConnection> connect_renewed(Identity& identity, const Budget& budget) const;
  void give(std::unique_ptr<HttpConnection> connection, const std::string& certificate);
  ApiStream ask(const ApiRequest& request, const Query& upgrade, const Budget& budget);
  net::HttpRequest written(const ApiRequest& request, const Query& upgrade, const Identity& identity) const;
  enum class Repeat { kNever, kIfNothingWasDone, kAlways };
  static Repeat repeat_of(const ApiRequest& request, const Query& upgrade);
  bool may_try_again(const ApiStream& asked, Repeat repeat, const std::string& said, bool& renewed,
                     const Budget& budget);

  const ClusterAccess access_;
  const ApiLimits limits_;
  RateLimit rate_;
  std::mutex mutex_;  // of kept_
  std::vector<Kept> kept_;
};

}  // namespace isogate::k8s
