// A client of the Kubernetes API. Start here; watch.h and exec_channel.h are written on top of it.
//
// Any thread, concurrently: each call takes a connection of its own from a small pool of kept ones, or makes
// one. Every call takes a Budget: waiting for its turn, connecting, sending and receiving are bounded by it,
// so a silent server hangs nobody.
//
// Errors are ApiError, thrown: what the API server's Status says (api_error.h), ISOGATE_UNAVAILABLE when it
// cannot be reached, is late, breaks off or answers nonsense (maybe_done() tells what may have happened),
// ISOGATE_CANCELLED.
//
// What is repeated, five times at most and within the budget: after a 401 once, with newer credentials when
// there are any; after a 429, whatever the method, since nothing was done; after a 503 with Retry-After, and
// over a kept connection that turned out dead, only what may be done twice: GET, and DELETE. Nothing else
// ever is, nor an upgrade but after a 401.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/http.h"
#include "plugins/k8s/client/access.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/resource.h"

namespace isogate::k8s {

using Json = nlohmann::json;
using Query = std::vector<std::pair<std::string, std::string>>;

using net::HttpConnection;
using net::HttpHead;

struct ApiLimits {
  double qps = 50;  // of all requests but those of open(); 0: any number
  double burst = 100;
  size_t answer_most = size_t{16} << 20;
  size_t kept_most = 8;  // connections without work
};

struct ApiRequest {
  std::string method, path;  // path as Resource::path() gives it
  Query query = {};          // not yet encoded
  std::string body = {};     // JSON
  std::string content_type = "application/json";
  std::string attempt = {};  // "create pod `x`", for messages
  std::string name = {};     // of the object: only a 404 that names it says that it is not there
};

enum class Patch { kMerge, kStrategic, kJson };  // kJson: a list of operations, RFC 6902

struct Selection {
  std::string labels = {}, fields = {};  // as in labelSelector and fieldSelector
  size_t page = 500;                     // asked for at once
};

// A streamed answer with a good status, its body not yet read; for watch.h and exec_channel.h.
struct ApiStream {
  std::unique_ptr<HttpConnection> connection;
  HttpHead head;
  std::string certificate;  // which was shown
};

class Api {
 public:
  explicit Api(ClusterAccess access, ApiLimits limits = {});
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  [[nodiscard]] const ClusterAccess& access() const;

  // The answer's JSON of any 2xx, null where there is none. `status`: which it was.
  Json call(const ApiRequest& request, const Budget& budget, int* status = nullptr);

  Json get(const Resource& what, const Budget& budget);
  // `body` with its metadata.name, or generateName; `what` without name unless with a subresource (eviction).
  // `query`: {{"dryRun", "All"}}, say; likewise below.
  Json create(const Resource& what, const Json& body, const Budget& budget, const Query& query = {});
  Json patch(const Resource& what, Patch kind, const Json& body, const Budget& budget,
             const Query& query = {});
  // With metadata.resourceVersion in `body` somebody else's change is an error, reason() "Conflict".
  Json replace(const Resource& what, const Json& body, const Budget& budget, const Query& query = {});
  // `options`: {{"gracePeriodSeconds", 0}, {"propagationPolicy", "Background"},
  // {"preconditions", {{"uid", …}}}}; null: none. What is not there is ISOGATE_NOT_FOUND, another uid
  // reason() "Conflict"; a collection, `what` without name, is ISOGATE_INVALID_ARGUMENT.
  Json remove(const Resource& what, const Json& options, const Budget& budget);
  // All pages as one: {"metadata": {"resourceVersion": …}, "items": […]}. Bounded to 64 MiB together.
  Json list(const Resource& what, const Selection& selection, const Budget& budget);

  // A connection of its own, not counted by the rate; `upgrade`: headers of a WebSocket's, and 101 is the
  // good status.
  ApiStream open(const ApiRequest& request, const Query& upgrade, const Budget& budget);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isogate::k8s
