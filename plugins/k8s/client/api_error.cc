#include "plugins/k8s/client/api_error.h"

#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

isogate_status status_of(int http_status, const std::string& reason) {
  switch (http_status) {
    case 400:
    case 413:
    case 422:
      return ISOGATE_INVALID_ARGUMENT;
    case 401:
    case 403:
      return ISOGATE_PERMISSION_DENIED;
    case 404:  // any proxy may answer that: only the API server's own Status counts
      return reason == "NotFound" ? ISOGATE_NOT_FOUND : ISOGATE_UNAVAILABLE;
    case 410:
      return ISOGATE_UNAVAILABLE;
    case 405:
    case 406:
    case 415:
      return ISOGATE_UNSUPPORTED;
    case 409:
      return reason == "AlreadyExists" ? ISOGATE_ALREADY_EXISTS : ISOGATE_UNAVAILABLE;
    default:
      return http_status == 429 || http_status >= 500 ? ISOGATE_UNAVAILABLE : ISOGATE_IO;
  }
}

}  // namespace

NetError refusal(const std::string& attempt, int http_status, std::string_view body, std::string_view name) {
  constexpr size_t kReasonMost = 60;
  const auto json = parse_shallow(body);
  const bool is_status = json.is_object() && text_at(json, "kind") == "Status";
  const std::string reason = is_status ? one_line(text_at(json, "reason"), kReasonMost) : "";
  const std::string said = one_line(is_status ? text_at(json, "message") : std::string(body));
  isogate_status status = status_of(http_status, reason);
  if (status == ISOGATE_NOT_FOUND && !name.empty() && text_at(member(json, "details"), "name") != name)
    status = ISOGATE_UNAVAILABLE;
  return {status,
          "cannot " + attempt + ": the API server answered " + std::to_string(http_status) +
              (reason.empty() ? "" : " " + reason) + (said.empty() ? "" : ": " + said),
          http_status, true, reason};
}

}  // namespace isogate::k8s
