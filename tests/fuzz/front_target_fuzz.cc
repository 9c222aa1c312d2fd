// Request targets, ranges and the paths in them: a route's parameters are those in the target, decoded once,
// and a path that passes the lexical check names something below its root.
#include <string>

#include "gateway/front/api/byte_range.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/base/names.h"
#include "lib/text.h"
#include "runner/files/workspace_path.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate::front;

void check_path(std::string_view path) {
  for (const uint32_t scope : {ISOGATE_SCOPE_WORKSPACE, ISOGATE_SCOPE_SANDBOX}) {
    const auto parts = isogate::parse_path(path, scope);
    if (!parts.ok()) {
      require(isogate::is_utf8(parts.error().message));
      continue;
    }
    for (const auto& part : parts->parts) {
      require(!part.empty() && part != "." && part.find('/') == std::string::npos);
      require(part != ".." && part.find('\0') == std::string::npos);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static constexpr std::string_view kMethods[] = {"GET", "PUT", "HEAD", "DELETE", "POST"};
  for (const auto method : kMethods) {
    try {
      const Routed routed = route_target(method, text);
      require(routed.route->method == method);
      require(text.starts_with('/') && text.find('#') == std::string_view::npos);
      require(routed.agent.size() + routed.path.size() <= size);
      query_parameter(routed.query, "scope");
      check_path(routed.path);
    } catch (const ApiError& error) {
      require(error.http_status() >= 400 && error.http_status() < 500 && isogate::is_utf8(error.body("id")));
    }
  }
  check_path(text);
  if (valid_agent_id(text)) require(size > 0 && size < 64 && text.find('/') == std::string_view::npos);
  const uint64_t total = size == 0 ? 0 : uint64_t{data[0]} << (data[size - 1] % 56);
  if (const auto range = parse_range(text, total)) {
    require(range->offset <= total && range->length <= total - range->offset);
    require(range->partial || range->length == total);
  }
  return 0;
}
