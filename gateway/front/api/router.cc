#include "gateway/front/api/router.h"

#include <algorithm>
#include <set>

#include "gateway/front/base/api_error.h"
#include "lib/redact.h"
#include "lib/text.h"

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
    const bool is_path = pattern.starts_with("{path}"), is_port = pattern.starts_with("{port}");
    const size_t end = is_path ? path.size() : std::min(path.find('/'), path.size());
    if (end == 0 && !is_path) return std::nullopt;
    (is_path || is_port ? found.path : found.agent) = path.substr(0, end);
    path.remove_prefix(end);
    pattern.remove_prefix(pattern.find('}') + 1);
  }
  if (!path.empty()) return std::nullopt;
  return found;
}

std::string decoded(std::string_view raw) {
  auto text = percent_decode(raw);
  if (!text) throw invalid_request("the request's path has a malformed %-escape");
  return std::move(*text);
}

}  // namespace

const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> made;
    for (const auto& rows :
         {exec_routes(), long_exec_routes(), file_routes(), raw_file_routes(), archive_routes(),
          watch_routes(), sandbox_routes(), port_routes(), orphan_routes(), operation_routes(), mcp_routes()})
      made.insert(made.end(), rows.begin(), rows.end());
    return made;
  }();
  return all;
}

Routed route_target(std::string_view method, std::string_view target, const std::vector<Route>& table) {
  if (target.empty() || target.front() != '/' || target.find('#') != std::string_view::npos)
    throw invalid_request("the request target must be a path that starts with /");
  const size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  std::string allow;
  for (const Route& row : table) {
    const bool longer = row.also_with_slash && path.ends_with('/');
    const auto found = match(row.path, path.substr(0, path.size() - (longer ? 1 : 0)));
    if (!found) continue;
    if (row.method == method) {
      const auto query = mark == std::string_view::npos ? std::string_view{} : target.substr(mark + 1);
      return {&row, decoded(found->agent), decoded(found->path), query};
    }
    allow.append(allow.empty() ? "" : ", ").append(row.method);
  }
  if (!allow.empty()) {
    throw ApiError{
        .code = Code::kMethodNotAllowed, .message = "this path takes " + allow, .header = {"Allow", allow}};
  }
  throw ApiError{
      .code = Code::kNotFound,
      .message = "no such call: " + printable(redact(path), 200) + "; GET /openapi.json lists them"};
}

void route_exchange(Exchange& exchange, const std::vector<Route>& table) {
  Routed found = route_target(exchange.method(), exchange.target(), table);
  exchange.route = found.route;
  exchange.agent_param = std::move(found.agent);
  exchange.path_param = std::move(found.path);
  exchange.query = found.query;
}

// A misspelled `purge` must not keep the files. Health checks may add parameters of their own.
void check_query(const Route& route, std::string_view query) {
  if (route.needs == Needs::kNothing || route.needs == Needs::kKeyOfPort || route.any_query) return;
  std::set<std::string_view> seen;
  while (!query.empty()) {
    std::string_view value = next_part(query, '&');
    if (value.empty()) continue;
    const std::string_view name = next_part(value, '=');
    std::string problem;
    if (std::find(route.parameters.begin(), route.parameters.end(), name) == route.parameters.end())
      problem =
          "is unknown; this call takes " + (route.parameters.empty() ? "none" : join(route.parameters, ", "));
    else if (!seen.insert(name).second)
      problem = "is there twice";
    else if (!percent_decode(value))
      problem = "has a malformed %-escape";
    if (!problem.empty())
      throw invalid_request("the query parameter `" + printable(name, 80) + "` " + problem);
  }
}

std::optional<std::string> query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    std::string_view value = next_part(query, '&');
    if (next_part(value, '=') == name) return percent_decode(value).value_or("");
  }
  return std::nullopt;
}

bool query_flag(std::string_view query, std::string_view name, bool otherwise) {
  const auto value = query_parameter(query, name);
  if (!value) return otherwise;
  if (*value != "true" && *value != "false")
    throw invalid_request("`" + std::string(name) + "` must be true or false");
  return *value == "true";
}

}  // namespace isogate::front
