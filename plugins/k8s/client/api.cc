#include "plugins/k8s/client/api.h"

#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/text.h"
#include "plugins/k8s/client/api_impl.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr size_t kListMost = size_t{64} << 20;

std::string dump(const Json& body, const std::string& attempt) try {
  return body.dump();
} catch (const Json::exception&) {
  throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot " + attempt + ": a text is no UTF-8");
}

ApiRequest about(const char* method, const char* verb, const Resource& what) {
  return {.method = method,
          .path = what.path(),
          .attempt = std::string(verb) + " " + what.text(),
          .name = what.name};
}

ApiRequest with_body(const char* method, const char* verb, const Resource& what, const Json& body,
                     const Query& query) {
  ApiRequest request = about(method, verb, what);
  request.query = query;
  request.body = dump(body, request.attempt);
  return request;
}

Json parse(const std::string& text, const ApiRequest& request) {
  if (text.empty()) return nullptr;
  Json answer = parse_shallow(text);
  if (!answer.is_discarded()) return answer;
  throw NetError(ISOGATE_UNAVAILABLE,
                 "cannot " + (request.attempt.empty() ? request.path : request.attempt) +
                     ": the API server's answer is no JSON",
                 0, true);
}

constexpr size_t kNameMost = 253;

// Names of objects, plurals and versions: what leads out of its place in a path has no such shape.
const std::string& in_path(const std::string& name, const char* what) {
  if (name.size() > kNameMost || !is_alnum_or(name, "-.:") ||
      name.find_first_not_of('.') == std::string::npos)
    throw NetError(ISOGATE_INVALID_ARGUMENT,
                   "`" + one_line(name, 80) + "` is no " + what + " that a cluster has");
  return name;
}

std::string version_path(const std::string& group_version) {
  const size_t slash = group_version.find('/');
  if (slash == std::string::npos) return "/api/" + in_path(group_version, "version");
  return "/apis/" + in_path(group_version.substr(0, slash), "group") + "/" +
         in_path(group_version.substr(slash + 1), "version");
}

}  // namespace

std::string Resource::path() const {
  std::string path = version_path(group_version);
  if (!name_space.empty()) path += "/namespaces/" + in_path(name_space, "namespace");
  path += "/" + in_path(plural, "resource");
  if (!name.empty()) path += "/" + in_path(name, "name");
  if (!subresource.empty()) path += "/" + in_path(subresource, "subresource");
  return path;
}

std::string Resource::text() const {
  constexpr size_t kMost = 120;
  std::string what = plural + (subresource.empty() ? "" : "/" + subresource);
  if (name_space.empty() && name.empty()) return one_line(what, kMost);
  what += " `" + name_space + (name_space.empty() || name.empty() ? "" : "/") + name + "`";
  return one_line(what, kMost);
}

Api::Api(ClusterAccess access, ApiLimits limits) : impl_(std::make_unique<Impl>(std::move(access), limits)) {}
Api::~Api() = default;

const ClusterAccess& Api::access() const { return impl_->access; }

Json Api::call(const ApiRequest& request, const Budget& budget) {
  return parse(impl_->text(request, budget), request);
}

Json Api::get(const Resource& what, const Budget& budget) { return call(about("GET", "get", what), budget); }

std::optional<Json> Api::find(const Resource& what, const Budget& budget) {
  std::optional<Json> found;
  net::unless_gone([&] { found = get(what, budget); });
  return found;
}

Json Api::create(const Resource& what, const Json& body, const Budget& budget, const Query& query) {
  return call(with_body("POST", "create", what, body, query), budget);
}

Json Api::replace(const Resource& what, const Json& body, const Budget& budget, const Query& query) {
  return call(with_body("PUT", "replace", what, body, query), budget);
}

Json Api::remove(const Resource& what, const Json& options, const Budget& budget) {
  if (what.name.empty())
    throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot delete " + what.text() + ": no object is named");
  if (options.is_null()) return call(about("DELETE", "delete", what), budget);
  return call(with_body("DELETE", "delete", what, options, {}), budget);
}

Json Api::list(const Resource& what, const Selection& selection, const Budget& budget) {
  ApiRequest request = about("GET", "list", what);
  if (!selection.labels.empty()) request.query.emplace_back("labelSelector", selection.labels);
  if (!selection.fields.empty()) request.query.emplace_back("fieldSelector", selection.fields);
  request.query.emplace_back("limit", std::to_string(selection.page));
  const auto fail = [&](const char* why) {
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + request.attempt + ": " + why, 0, true);
  };
  Json whole = {{"metadata", Json::object()}, {"items", Json::array()}};
  size_t bytes = 0;
  for (std::string next;;) {
    const std::string text = impl_->text(request, budget);
    bytes += text.size();
    if (bytes > kListMost) fail("there is more than 64 MiB");
    Json page = parse(text, request);
    Json& items = page.is_object() ? page["items"] : page;
    if (!page.is_object() || !(items.is_array() || items.is_null())) fail("the answer is no list");
    for (Json& item : items) whole["items"].push_back(std::move(item));
    const Json& metadata = page["metadata"];
    whole["metadata"]["resourceVersion"] = text_at(metadata, "resourceVersion");
    const std::string token = text_at(metadata, "continue");
    if (token.empty()) return whole;
    if (token == next) fail("it does not end");
    if (!next.empty()) request.query.pop_back();
    request.query.emplace_back("continue", token);
    next = token;
  }
}

ApiStream Api::open(const ApiRequest& request, const Query& upgrade, const Budget& budget) {
  return impl_->open(request, upgrade, false, budget);
}

}  // namespace isogate::k8s
