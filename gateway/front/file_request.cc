#include "gateway/front/file_request.h"

#include <charconv>

#include "gateway/front/exchange.h"
#include "gateway/front/text.h"

namespace isogate::front {

ApiError invalid_file(std::string message) {
  return {.code = Code::kInvalidRequest, .message = std::move(message)};
}

void throw_unless_ok(App& app, Lease& lease, const ipc::Reply& reply, bool client_gone) {
  app.backends.judge(*lease.backend, lease.sandbox->row, reply);
  if (client_gone) throw ClientGone{};
  if (reply.status == ISOGATE_OK) return;
  if (reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST)
    app.sandboxes.lost(lease, reply.status);
  ApiError error = from_backend({reply.status, reply.os_errno, reply.message});
  if (reply.status == ISOGATE_LOST)
    error.message = "contact with the backend was lost during the call: " + reply.message;
  throw error;
}

uint32_t parse_scope(std::string_view scope) {
  if (scope == "workspace") return ISOGATE_SCOPE_WORKSPACE;
  if (scope == "sandbox") return ISOGATE_SCOPE_SANDBOX;
  throw invalid_file("`scope` must be workspace or sandbox");
}

uint32_t parse_mode(std::string_view text) {
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error != std::errc() || end != text.data() + text.size() || mode > 0777 || text.empty()) {
    throw invalid_file("`mode` must be octal permission bits like \"0644\", at most 0777");
  }
  return mode;
}
void check_path(std::string_view name, std::string_view path) {
  if (path.size() > kMaxPath)
    throw invalid_file("`" + std::string(name) + "` is longer than " + std::to_string(kMaxPath) + " bytes");
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      throw invalid_file("`" + std::string(name) + "` holds a control character: " + printable(path, 200));
    }
  }
}

std::chrono::seconds idle_limit(const App& app) {
  return std::chrono::seconds(app.config.limits.body_idle_timeout_sec);
}

uint64_t needed_capabilities(const FileTarget& target) {
  if (target.user.size() > kMaxUser)
    throw invalid_file("`user` is longer than " + std::to_string(kMaxUser) + " bytes");
  return (target.scope == ISOGATE_SCOPE_SANDBOX ? ISOGATE_CAP_SCOPE_SANDBOX : 0) |
         (target.user.empty() ? 0 : ISOGATE_CAP_USER);
}

}  // namespace isogate::front
