// Who calls. Over TCP an API key, kept only as its SHA-256; over the Unix socket the peer's uid;
// `anonymous: loopback` is the one relaxation, and host_allowed() and origin_allowed() are its
// conditions. An Authenticator is immutable: any thread. No key ever appears in a message.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gateway/config/config.h"
#include "lib/error.h"

namespace isogate::front {

struct Principal {
  std::string tenant;
  std::string key_name;      // for the log: a key's name, "local.key", "uid 1000" or "anonymous"
  bool is_operator = false;  // the gateway's own user or root, over the Unix socket
  bool of_sandbox = false;   // by its sandbox's token, which no reload removes
};

inline constexpr std::string_view kLocalTenant = "local";
inline constexpr size_t kMaxTokenBytes = 1024;

class Authenticator {
 public:
  // `local_key_sha256`: 64 hex digits; empty: there is no local.key. Fails on a hash that is not 64 hex
  // digits and on one key for two principals.
  static Result<Authenticator> make(const Config& config, const std::string& local_key_sha256,
                                    const std::vector<uint32_t>& peer_uids);

  // Compares with every stored hash, in constant time.
  [[nodiscard]] std::optional<Principal> by_key(std::string_view presented) const;
  [[nodiscard]] std::optional<Principal> by_peer_uid(uint32_t uid) const;
  // Only for a loopback listener and a loopback peer, after host_allowed() and origin_allowed().
  [[nodiscard]] std::optional<Principal> by_loopback() const;

 private:
  struct Key {
    std::string hash;  // lower-case digits
    Principal principal;
  };
  Authenticator() = default;
  std::vector<Key> keys_;
  std::vector<uint32_t> peer_uids_;
  bool anonymous_loopback_ = false;
};

// The key in an Authorization header: scheme `Bearer` in any case, spaces, one token (RFC 6750
// b64token, at most kMaxTokenBytes), nothing after it. nullopt for anything else.
std::optional<std::string_view> bearer_token(std::string_view authorization);

// Whether it has the form of a sandbox token of the E2B listener (e2b/sandbox.h).
bool is_sandbox_token(std::string_view text);

// Where a connection was accepted, from getsockname().
struct BoundAddress {
  std::string ip;  // numeric, without brackets
  uint16_t port = 0;
};

// Two spellings of one numeric address. False when either is none.
bool same_address(std::string_view a, std::string_view b);

// Against DNS rebinding: `localhost`, a loopback address, the bound address or a configured name, in
// any case, with the bound port or none. False answers 421.
bool host_allowed(std::string_view host_header, const BoundAddress& bound,
                  const std::vector<std::string>& names);

// Against web pages: an Origin that is not listed (scheme://host[:port], compared without case), or
// a fetch that the browser marks as coming from another site. Absent headers are nullopt. False
// answers 403.
bool origin_allowed(std::optional<std::string_view> origin, std::optional<std::string_view> sec_fetch_site,
                    const std::vector<std::string>& listed);

// Whether a proxy sets a header of this name. The caller is then not the peer, and neither a loopback
// address nor a peer's uid identifies it.
bool names_a_proxy(std::string_view header_name);

// The key under which peers count as one: a v4 address, a v6 /64 (the size of one customer's network); any
// other text itself.
std::string peer_key(std::string_view ip);

// Slows down wrong keys: a bucket of tokens per peer address (per /64 with IPv6), the longest
// unused one making room. A right key is never slowed: on loopback everybody has the same address,
// and one local user must not lock out another. One thread.
class WrongKeys {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    double burst = 10;
    double per_second = 1;
    size_t max_peers = 4096;
  };
  WrongKeys() = default;
  explicit WrongKeys(Options options) : options_(options) {}

  // Counts one wrong key. nullopt: answer 401; otherwise 429 with this Retry-After, at least 1 s.
  std::optional<std::chrono::seconds> wrong(std::string_view peer_ip, Time now);
  // What wrong() would say. Counts nothing.
  [[nodiscard]] std::optional<std::chrono::seconds> must_wait(std::string_view peer_ip, Time now) const;
  [[nodiscard]] size_t peers() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::string peer;
    double tokens = 0;
    Time at{};
  };
  [[nodiscard]] double tokens_of(const Bucket& bucket, Time now) const;
  [[nodiscard]] std::optional<std::chrono::seconds> until_one(double tokens) const;

  Options options_;
  std::list<Bucket> order_;  // most recently used first
  std::unordered_map<std::string, std::list<Bucket>::iterator> buckets_;
};

}  // namespace isogate::front
