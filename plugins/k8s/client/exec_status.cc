#include "plugins/k8s/client/exec_status.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "lib/json_depth.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

// A failure never has a Status of success.
std::optional<int> exit_code_of(const Json& status) {
  constexpr int kMost = 255;
  const Json& causes = member(member(status, "details"), "causes");
  if (!causes.is_array()) return std::nullopt;
  for (const Json& cause : causes) {
    if (text_at(cause, "reason") != "ExitCode") continue;
    const std::string digits = text_at(cause, "message");
    int code = 0;
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, code);
    if (parsed.ec == std::errc() && parsed.ptr == end && code > 0 && code <= kMost) return code;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ExecEnd> parse_exec_status(std::string_view text) {
  const Json status = Json::parse(is_shallow(text) ? text : "", nullptr, false);
  if (!status.is_object()) return std::nullopt;
  const std::string verdict = text_at(status, "status");
  if (verdict == "Success") return ExecEnd{.how = ExecEnd::How::kExited, .exit_code = 0};
  if (verdict != "Failure") return std::nullopt;
  if (const auto code = exit_code_of(status))
    return ExecEnd{.how = ExecEnd::How::kExited, .exit_code = *code};
  const std::string reason = text_at(status, "reason"), message = text_at(status, "message");
  return ExecEnd{.how = ExecEnd::How::kFailed,
                 .why = printable(reason.empty() ? message : reason + ": " + message)};
}

}  // namespace isogate::k8s
