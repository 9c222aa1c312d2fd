#include "plugins/docker/client/engine_error.h"

#include <nlohmann/json.hpp>

#include "lib/json.h"

namespace isogate::docker {
namespace {

// What the Engine puts into {"message": …} (podman also {"cause": …}), or the whole answer.
std::string message_of(std::string_view body) {
  const nlohmann::json json = parse_shallow(body);
  const nlohmann::json& message = member(json, "message");
  return message.is_string() ? message.get<std::string>() : std::string(body);
}

isogate_status status_of(int http_status) {
  switch (http_status) {
    case 400:
      return ISOGATE_INVALID_ARGUMENT;
    case 401:
    case 403:
      return ISOGATE_PERMISSION_DENIED;
    case 404:
      return ISOGATE_NOT_FOUND;
    case 409:
    case 429:
      return ISOGATE_UNAVAILABLE;
    case 501:
      return ISOGATE_UNSUPPORTED;
    default:
      return http_status >= 500 ? ISOGATE_UNAVAILABLE : ISOGATE_IO;
  }
}

}  // namespace

NetError refusal(const std::string& attempt, int http_status, std::string_view body) {
  const std::string reason = one_line(message_of(body));
  return {status_of(http_status),
          "cannot " + attempt + ": the Engine answered " + std::to_string(http_status) +
              (reason.empty() ? "" : ": " + reason),
          http_status, true};
}

}  // namespace isogate::docker
