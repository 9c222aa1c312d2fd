// http:// and https:// addresses, as far as kubeconfigs have them. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace isogate::k8s {

struct Url {
  bool https = false;
  std::string user, password;  // percent-decoded
  std::string host;            // without brackets
  uint16_t port = 0;           // as written, or the scheme's
  std::string path;            // without a '/' at its end: "" or "/a/b"
};

// Nothing if it is no URL, has a query or a fragment, or another scheme.
std::optional<Url> parse_url(std::string_view text);

}  // namespace isogate::k8s
