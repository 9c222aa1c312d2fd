#include "gateway/front/router.h"

#include <optional>

#include "gateway/front/api_error.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

struct Parameters {
  std::string_view agent, path;
};

// Matches a template of the table against a raw path.
std::optional<Parameters> match(std::string_view pattern, std::string_view path) {
  Parameters found;
  while (!pattern.empty()) {
    if (pattern.front() != '{') {
      if (path.empty() || path.front() != pattern.front()) return std::nullopt;
      pattern.remove_prefix(1);
      path.remove_prefix(1);
      continue;
    }
    const bool is_path = pattern.starts_with("{path}");
    const size_t end = is_path ? path.size() : std::min(path.find('/'), path.size());
    if (end == 0 && !is_path) return std::nullopt;
    (is_path ? found.path : found.agent) = path.substr(0, end);
    path.remove_prefix(end);
    pattern.remove_prefix(pattern.find('}') + 1);
  }
  if (!path.empty()) return std::nullopt;
  return found;
}

std::string decoded(std::string_view raw) {
  auto text = percent_decode(raw);
  if (!text)
    throw ApiError{.code = Code::kInvalidRequest, .message = "the request's path has a malformed %-escape"};
  return std::move(*text);
}

}  // namespace

Routed route_target(std::string_view method, std::string_view target) {
  if (target.empty() || target.front() != '/' || target.find('#') != std::string_view::npos) {
    throw ApiError{.code = Code::kInvalidRequest,
                   .message = "the request target must be a path that starts with /"};
  }
  const size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  std::string allow;
  for (const RouteRow& row : kRoutes) {
    const auto found = match(row.path, path);
    if (!found) continue;
    if (row.method == method) {
      return {row.route, decoded(found->agent), decoded(found->path),
              mark == std::string_view::npos ? std::string_view{} : target.substr(mark + 1)};
    }
    allow.append(allow.empty() ? "" : ", ").append(row.method);
  }
  if (!allow.empty()) {
    throw ApiError{.code = Code::kMethodNotAllowed, .message = "this path takes " + allow, .allow = allow};
  }
  throw ApiError{.code = Code::kNotFound,
                 .message = "no such call: " + printable(path, 200) + "; GET /openapi.json lists them"};
}

const RouteRow& row_of(Route route) { return kRoutes[static_cast<size_t>(route)]; }

}  // namespace isogate::front
