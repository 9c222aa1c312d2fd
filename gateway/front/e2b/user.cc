#include "gateway/front/e2b/user.h"

#include <algorithm>

#include "gateway/front/base/api_error.h"
#include "gateway/front/http/http_text.h"
#include "lib/text.h"

namespace isogate::front::e2b {

std::string user_named(const Config& config, std::string_view name) {
  const auto lists_it = [name](const BackendConfig& backend) {
    return std::ranges::find(backend.users, name) != backend.users.end();
  };
  const bool is_own =
      name == kDefaultUser || (name == kOwnUser && std::ranges::none_of(config.backends, lists_it));
  return is_own ? std::string() : std::string(name);
}

std::string user_of(const Config& config, const Exchange& exchange) {
  constexpr std::string_view kScheme = "basic ";
  const std::string_view given = exchange.header("Authorization");
  if (given.size() < kScheme.size() || !equal_no_case(given.substr(0, kScheme.size()), kScheme)) return {};
  const auto pair = base64_decode(given.substr(kScheme.size()));
  if (!pair) throw invalid_request("`Authorization: Basic` is not valid base64");
  return user_named(config, std::string_view(*pair).substr(0, pair->find(':')));
}

}  // namespace isogate::front::e2b
