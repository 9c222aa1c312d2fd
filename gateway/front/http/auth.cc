#include "gateway/front/http/auth.h"

#include <algorithm>
#include <cmath>

#include "gateway/front/http/http_text.h"
#include "lib/hash.h"
#include "lib/loopback.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

bool is_unspecified(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

// `rest` of the split_host() of a header.
bool port_fits(std::string_view rest, uint16_t port) {
  return rest.empty() || (rest[0] == ':' && number_in<uint16_t>(rest.substr(1)) == port);
}

}  // namespace

std::string peer_key(std::string_view ip) {
  std::string bytes = address_bytes(ip);
  if (bytes.empty()) return "?" + std::string(ip.substr(0, 64));
  return bytes.substr(0, bytes.size() == 16 ? 8 : 4);
}

Result<Authenticator> Authenticator::make(const Config& config, const std::string& local_key_sha256,
                                          const std::vector<uint32_t>& peer_uids) {
  Authenticator made;
  made.peer_uids_ = peer_uids;
  made.anonymous_loopback_ = config.anonymous == "loopback" && !config.require_remote;
  std::vector<KeyConfig> keys = config.keys;
  if (!local_key_sha256.empty()) keys.push_back({"local.key", std::string(kLocalTenant), local_key_sha256});
  for (const KeyConfig& key : keys) {
    std::string hash = to_lower(key.sha256);
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      return invalid("key `" + key.name + "`: sha256 must be the 64 hex digits of the key's SHA-256");
    if (key.tenant.empty()) return invalid("key `" + key.name + "`: tenant must not be empty");
    for (const Key& other : made.keys_)
      if (other.hash == hash)
        return invalid("key `" + key.name + "` is the same key as `" + other.principal.key_name +
                       "`; each needs a key of its own");
    made.keys_.push_back({std::move(hash), {key.tenant, key.name}});
  }
  return made;
}

std::optional<Principal> Authenticator::by_key(std::string_view presented) const {
  if (presented.empty() || presented.size() > kMaxTokenBytes) return std::nullopt;
  const std::string hash = sha256_hex(presented);
  size_t match = 0;  // 1 + index; chosen by mask, so that no branch depends on which one fits
  for (size_t i = 0; i < keys_.size(); ++i) {
    size_t mask = size_t{0} - static_cast<size_t>(equal_constant_time(keys_[i].hash, hash));
    match |= mask & (i + 1);
  }
  if (match == 0) return std::nullopt;
  return keys_[match - 1].principal;
}

std::optional<Principal> Authenticator::by_peer_uid(uint32_t uid) const {
  if (std::ranges::find(peer_uids_, uid) == peer_uids_.end()) return std::nullopt;
  return Principal{std::string(kLocalTenant), "uid " + std::to_string(uid), true};
}

std::optional<Principal> Authenticator::by_loopback() const {
  if (!anonymous_loopback_) return std::nullopt;
  return Principal{std::string(kLocalTenant), "anonymous"};
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
  static constexpr std::string_view kScheme = "bearer";
  if (authorization.size() <= kScheme.size() ||
      !equal_no_case(authorization.substr(0, kScheme.size()), kScheme))
    return std::nullopt;
  std::string_view token = authorization.substr(kScheme.size());
  size_t spaces = token.find_first_not_of(' ');
  if (spaces == 0 || spaces == std::string_view::npos) return std::nullopt;
  token.remove_prefix(spaces);
  if (token.size() > kMaxTokenBytes) return std::nullopt;
  if (!is_alnum_or(token.substr(0, token.find_last_not_of('=') + 1), "-._~+/")) return std::nullopt;
  return token;
}

bool is_sandbox_token(std::string_view text) {
  constexpr size_t kId = 21, kSecret = 52;  // "i" and 96 bits; 256 bits
  return text.size() == kId + 1 + kSecret && text[0] == 'i' && text[kId] == 'x' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") == std::string_view::npos;
}

bool same_address(std::string_view a, std::string_view b) {
  const std::string bytes = address_bytes(a);
  return !bytes.empty() && bytes == address_bytes(b);
}

bool host_allowed(std::string_view host_header, const BoundAddress& bound,
                  const std::vector<std::string>& names) {
  const auto host = split_host(host_header);
  if (!host || host->host.empty() || !port_fits(host->rest, bound.port)) return false;
  std::string address = address_bytes(host->host);
  bool v6_text = host->host.find(':') != std::string_view::npos;
  if (host->bracketed != v6_text) return false;
  if (!address.empty())
    return !is_unspecified(address) && (is_loopback(host->host) || address == address_bytes(bound.ip));
  if (host->bracketed) return false;
  if (equal_no_case(host->host, "localhost")) return true;
  return std::ranges::any_of(names, [&](const std::string& name) { return equal_no_case(name, host->host); });
}

bool origin_allowed(std::optional<std::string_view> origin, std::optional<std::string_view> sec_fetch_site,
                    const std::vector<std::string>& listed) {
  if (origin) {
    if (origin->empty() || equal_no_case(*origin, "null")) return false;
    return std::ranges::any_of(listed, [&](const std::string& each) { return equal_no_case(each, *origin); });
  }
  return !sec_fetch_site || *sec_fetch_site == "none" || *sec_fetch_site == "same-origin";
}

bool names_a_proxy(std::string_view header_name) {
  static constexpr std::string_view kWhole[] = {"CF-Connecting-IP", "Client-IP",           "Forwarded",
                                                "Forwarded-For",    "True-Client-IP",      "Via",
                                                "X-Client-IP",      "X-Cluster-Client-IP", "X-Real-IP"};
  static constexpr std::string_view kBegins[] = {"X-Forwarded", "X-Original-", "X-Envoy-"};
  return std::ranges::any_of(kWhole, [&](std::string_view one) { return equal_no_case(header_name, one); }) ||
         std::ranges::any_of(kBegins, [&](std::string_view one) {
           return equal_no_case(header_name.substr(0, one.size()), one);
         });
}

double WrongKeys::tokens_of(const Bucket& bucket, Time now) const {
  const double elapsed = std::max(0.0, std::chrono::duration<double>(now - bucket.at).count());
  return std::min(options_.burst, bucket.tokens + elapsed * options_.per_second);
}

std::optional<std::chrono::seconds> WrongKeys::until_one(double tokens) const {
  if (tokens >= 1) return std::nullopt;
  const double wait = options_.per_second > 0 ? std::ceil((1 - tokens) / options_.per_second) : 60;
  return std::chrono::seconds(static_cast<int64_t>(std::clamp(wait, 1.0, 3600.0)));
}

std::optional<std::chrono::seconds> WrongKeys::must_wait(std::string_view peer_ip, Time now) const {
  const auto found = buckets_.find(peer_key(peer_ip));
  return found == buckets_.end() ? std::nullopt : until_one(tokens_of(*found->second, now));
}

std::optional<std::chrono::seconds> WrongKeys::wrong(std::string_view peer_ip, Time now) {
  std::string peer = peer_key(peer_ip);
  auto found = buckets_.find(peer);
  if (found == buckets_.end()) {
    if (buckets_.size() >= options_.max_peers && !order_.empty()) {
      buckets_.erase(order_.back().peer);
      order_.pop_back();
    }
    order_.push_front({peer, options_.burst, now});
    found = buckets_.emplace(std::move(peer), order_.begin()).first;
  }
  order_.splice(order_.begin(), order_, found->second);
  Bucket& bucket = order_.front();
  bucket.tokens = tokens_of(bucket, now);
  bucket.at = now;
  const auto wait = until_one(bucket.tokens);
  if (!wait) bucket.tokens -= 1;
  return wait;
}

}  // namespace isogate::front
