// Responses of a server: what the HTTP client reads must not depend on how the bytes were split, and a
// truncated response is never accepted as complete.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "lib/net/http.h"
#include "tests/fuzz/require.h"
#include "tests/net/scripted.h"

namespace isogate::test {

// What a client read of one response.
struct Answered {
  bool whole = false;      // its body was read to its end
  bool until_end = false;  // its end was that of the connection
  size_t left = 0;         // bytes after it that were not read
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
};

constexpr size_t kBodyMost = 4096;

inline std::string header_of(const Answered& seen, const char* name) {
  const auto found = seen.headers.find(name);
  return found == seen.headers.end() ? std::string() : found->second;
}

inline void look_at_length(const Answered& seen, bool has_body) {
  const std::string length = header_of(seen, "content-length");
  if (!seen.whole) return;
  require(seen.body.size() <= kBodyMost);
  if (!has_body) return require(seen.body.empty());
  if (!length.empty()) require(std::stoull(length) == seen.body.size());
}

inline Answered ask(std::string_view bytes, size_t piece, const char* method) {
  const net::Budget budget(std::chrono::seconds(60));
  Answered seen;
  auto transport = std::make_unique<Scripted>(bytes, std::max<size_t>(piece, 1), &seen.left);
  net::HttpConnection connection(std::move(transport), "server", "the server");
  try {
    net::HttpRequest request;
    request.method = method;
    request.target = "/x";
    const auto head = connection.exchange(request, budget);
    seen.status = head.status;
    seen.headers = head.headers;
    seen.body = connection.read_body(kBodyMost, budget);
    seen.whole = true;
  } catch (const sdk::Error& error) {
    require(error.status() == ISOGATE_UNAVAILABLE && std::strlen(error.what()) > 0);
    require(!connection.reusable());
  }
  seen.until_end = header_of(seen, "content-length").empty() && header_of(seen, "transfer-encoding").empty();
  const bool none = seen.status < 200 || seen.status == 204 || seen.status == 304;
  look_at_length(seen, !none && std::string_view(method) != "HEAD");
  return seen;
}

// However a response is split, it is the same. If bytes follow it, it may be refused instead.
inline void require_same(const Answered& a, const Answered& b) {
  require(a.status == b.status && a.headers == b.headers);
  if (a.whole && b.whole) return require(a.body == b.body);
  if (a.whole != b.whole) require((a.whole ? a : b).left > 0);
}

// One response, split in three ways, and truncated.
inline Answered look_at_answer(std::string_view bytes, size_t piece, size_t broken_at) {
  const Answered whole = ask(bytes, bytes.size(), "GET");
  require_same(ask(bytes, 1, "GET"), whole);
  require_same(ask(bytes, piece, "GET"), whole);
  ask(bytes, piece, "HEAD");
  // One that ends with its connection looks like a longer one; any other is complete, or refused.
  const Answered broken = ask(bytes.substr(0, bytes.empty() ? 0 : broken_at % bytes.size()), piece, "GET");
  if (broken.whole && !broken.until_end && whole.whole) require_same(broken, whole);
  return whole;
}

}  // namespace isogate::test
