// Any header values through the front's gate: no crash, and nobody is admitted by accident.
#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/front/http/auth.h"
#include "lib/hash.h"
#include "tests/fuzz/require.h"

namespace {

const std::string kKey = "the-one-key";

isogate::front::Authenticator make() {
  isogate::Config config;
  config.keys = {{"one", "tenant", isogate::sha256_hex(kKey)}};
  auto made = isogate::front::Authenticator::make(config, "", {});
  require(made.ok());
  return *made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate::front;
  static const Authenticator auth = make();
  static const std::vector<std::string> names = {"gw.test"}, origins = {"http://ui.test"};
  std::string_view text(reinterpret_cast<const char*>(data), size);

  require(auth.by_key(text).has_value() == (text == kKey));
  if (auto token = bearer_token(text)) {
    require(!token->empty() && token->size() <= kMaxTokenBytes && text.ends_with(*token));
    for (char c : *token) require(c > 0x20 && c < 0x7F);
  }
  const BoundAddress bound{"127.0.0.1", 9090};
  if (host_allowed(text, bound, names)) {
    for (char c : text) require(c > 0x20 && c < 0x7F && c != '@' && c != '/');
    require(host_allowed(text, bound, names));
  }
  if (origin_allowed(text, std::nullopt, origins)) require(text.size() == origins[0].size());
  origin_allowed(std::nullopt, text, origins);

  static WrongKeys wrong({2, 1, 64});
  static WrongKeys::Time now{};
  now += std::chrono::milliseconds(size);
  wrong.wrong(text, now);
  require(wrong.peers() <= 64);

  static const isogate::Config config;
  if (size != 0 && size != 64) require(!Authenticator::make(config, std::string(text), {}).ok());
  return 0;
}
