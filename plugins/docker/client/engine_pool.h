// The common part of the calls of engine.h: connections, the version, the way from a request to its
// response.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/net/http.h"
#include "plugins/docker/client/engine.h"

namespace isogate::docker {

using net::HttpConnection;
using net::HttpHead;

inline constexpr size_t kAnswerMost = size_t{16} << 20;

// One call, as the methods of Engine write it down.
struct EngineRequest {
  std::string attempt;  // "start container `x`", for messages
  std::string method, path;
  std::vector<int> good;  // the statuses of success
  std::string body;
  bool upgrade = false;
  Engine::ArchiveProducer produce;
  bool versioned = true;
};

// An answer with a good status, its body not yet read.
struct EngineReply {
  std::unique_ptr<HttpConnection> connection;
  HttpHead head;
};

struct Engine::Pool {
  explicit Pool(EngineAddress where) : address(std::move(where)) {}

  EngineReply open(const EngineRequest& request, const Budget& budget);
  std::string text(const EngineRequest& request, const Budget& budget);  // the whole body
  Json json(const EngineRequest& request, const Budget& budget);         // parsed
  // The rest of an answer, piece by piece.
  void body(EngineReply reply, const std::string& attempt, const ByteSink& sink, const Budget& budget);
  EngineReply hijack(EngineRequest request, const Budget& budget);
  std::string negotiated(const Budget& budget);
  std::string negotiate(const Budget& budget);  // asks, always
  bool podman();

  const EngineAddress address;

 private:
  std::unique_ptr<HttpConnection> take(const Budget& budget, bool& reused);
  void give(std::unique_ptr<HttpConnection> connection);
  void forget();  // contact was lost: what follows may be another Engine
  EngineReply attempt(const EngineRequest& request, const Budget& budget);
  void refuse(const EngineRequest& request, EngineReply& reply, const Budget& budget);

  std::mutex mutex_;
  std::vector<std::unique_ptr<HttpConnection>> idle_;
  std::string api_;  // empty: not negotiated yet
  bool podman_ = false;
};

// An answer's body: an object or an array, nested so little that it can be copied. Anything else throws
// ISOGATE_UNAVAILABLE.
Json parse_answer(std::string_view text, const std::string& attempt);

// The report of GET /info, without the negotiated values.
EngineInfo info_of(const Json& answer);

// As JSON; throws ISOGATE_INVALID_ARGUMENT when its texts are no UTF-8.
std::string dump(const Json& body, const std::string& attempt);

// "container `name`", for messages.
std::string quoted(const std::string& what, const std::string& name);

// {"label": …} as a query has it.
std::string label_filters(const std::vector<LabelFilter>& labels);

// The rows of a list whose "Labels" have all of these: podman's lists have what carries any of them.
std::vector<Json> carrying(Json rows, const std::vector<LabelFilter>& labels);

// "1.41" as two numbers that can be compared; throws when it is no version.
std::pair<int, int> parse_api_version(const std::string& text);

// Where connections go. Reads the files of its TLS each time, so that renewed ones are used.
net::Target target_of(const EngineAddress& address);

// A name or id as it may stand in a path; throws ISOGATE_INVALID_ARGUMENT for what no Engine gives out.
std::string in_path(const std::string& name);

}  // namespace isogate::docker
