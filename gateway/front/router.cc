#include "gateway/front/router.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

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

std::string listed(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
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
      const auto query = mark == std::string_view::npos ? std::string_view{} : target.substr(mark + 1);
      return {row.route, decoded(found->agent), decoded(found->path), query};
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

// A misspelled `purge` is no request to keep the files. Who looks whether we are alive may add what it likes.
void check_query(Route route, std::string_view query) {
  const RouteRow& row = row_of(route);
  if (!row.needs_key) return;
  std::set<std::string_view> seen;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::string_view name = pair.substr(0, pair.find('='));
    if (pair.empty()) continue;
    std::string problem;
    if (std::find(row.parameters.begin(), row.parameters.end(), name) == row.parameters.end())
      problem = "is unknown; this call takes " + (row.parameters.empty() ? "none" : listed(row.parameters));
    else if (!seen.insert(name).second)
      problem = "is there twice";
    else if (!percent_decode(pair.substr(std::min(pair.size(), name.size() + 1))))
      problem = "has a malformed %-escape";
    if (!problem.empty()) {
      throw ApiError{.code = Code::kInvalidRequest,
                     .message = "the query parameter `" + printable(name, 80) + "` " + problem};
    }
  }
}

}  // namespace isogate::front
