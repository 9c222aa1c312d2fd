#include "plugins/k8s/client/url.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate::k8s {
namespace {

bool take_user(std::string_view& authority, Url& url) {
  const size_t at = authority.rfind('@');
  if (at == std::string_view::npos) return true;
  const std::string_view user = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  const size_t colon = user.find(':');
  const auto name = percent_decode(user.substr(0, colon));
  const auto password =
      percent_decode(colon == std::string_view::npos ? std::string_view() : user.substr(colon + 1));
  if (!name || !password) return false;
  url.user = *name;
  url.password = *password;
  return true;
}

bool take_host(std::string_view& authority, Url& url) {
  size_t end = authority.find(':');
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return false;
    url.host = authority.substr(1, close - 1);
    end = close + 1;
  } else {
    url.host = authority.substr(0, end);
  }
  authority.remove_prefix(std::min(end, authority.size()));
  return is_alnum_or(url.host, ".-:_") && url.host.size() < 256;
}

}  // namespace

std::optional<Url> parse_url(std::string_view text) {
  Url url;
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  url.https = text.starts_with(kHttps);
  if (!url.https && !text.starts_with(kHttp)) return std::nullopt;
  text.remove_prefix(url.https ? kHttps.size() : kHttp.size());
  const auto printable_only = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '?' && c != '#'; };
  if (!std::all_of(text.begin(), text.end(), printable_only)) return std::nullopt;
  const size_t slash = std::min(text.find('/'), text.size());
  std::string_view authority = text.substr(0, slash);
  url.path = text.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (!take_user(authority, url) || !take_host(authority, url)) return std::nullopt;
  url.port = url.https ? 443 : 80;
  if (authority.empty()) return url;
  url.port = number_in<uint16_t>(authority.substr(1)).value_or(0);
  if (authority[0] != ':' || url.port == 0) return std::nullopt;
  return url;
}

}  // namespace isogate::k8s
