#include "gateway/front/base/api_error.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "lib/text.h"

namespace isogate::front {
namespace {

struct CodeRow {
  std::string_view text;
  unsigned status;
  bool retryable;
  RpcCode rpc;
};

// In the order of enum Code.
constexpr std::array kCodes = {
    CodeRow{"invalid_request", 400, false, {"invalid_argument", 400}},
    CodeRow{"unauthenticated", 401, false, {"unauthenticated", 401}},
    CodeRow{"permission_denied", 403, false, {"permission_denied", 403}},
    CodeRow{"file_not_found", 404, false, {"not_found", 404}},
    CodeRow{"sandbox_not_found", 404, false, {"not_found", 404}},
    CodeRow{"exec_not_found", 404, false, {"not_found", 404}},
    CodeRow{"not_found", 404, false, {"not_found", 404}},
    CodeRow{"method_not_allowed", 405, false, {"unimplemented", 501}},
    CodeRow{"request_timeout", 408, true, {"deadline_exceeded", 504}},
    CodeRow{"is_directory", 409, false, {"invalid_argument", 400}},
    CodeRow{"already_exists", 409, false, {"already_exists", 409}},
    CodeRow{"file_busy", 409, true, {"aborted", 409}},
    CodeRow{"exec_ended", 409, false, {"not_found", 404}},
    CodeRow{"already_attached", 409, true, {"aborted", 409}},
    CodeRow{"sandbox_lost", 410, false, {"aborted", 409}},
    CodeRow{"output_dropped", 410, false, {"data_loss", 500}},
    CodeRow{"file_too_large", 413, false, {"out_of_range", 400}},
    CodeRow{"unsupported_media_type", 415, false, {"invalid_argument", 415}},
    CodeRow{"range_not_satisfiable", 416, false, {"invalid_argument", 400}},
    CodeRow{"misdirected_request", 421, false, {"invalid_argument", 400}},
    CodeRow{"rate_limited", 429, true, {"resource_exhausted", 429}},  // to SDKs: try again later
    CodeRow{"internal", 500, false, {"internal", 500}},
    CodeRow{"unsupported", 501, false, {"unimplemented", 501}},
    CodeRow{"outcome_unknown", 502, false, {"unknown", 500}},
    CodeRow{"port_closed", 502, true, {"unavailable", 503}},
    CodeRow{"backend_unavailable", 503, true, {"unavailable", 503}},
    CodeRow{"draining", 503, true, {"unavailable", 503}},
    CodeRow{"quota_exceeded", 507, false, {"failed_precondition", 400}},
};
static_assert(kCodes.size() == kCodeCount);
static_assert(std::ranges::none_of(kCodes, [](const CodeRow& each) { return each.rpc.status == 0; }));

const CodeRow& row(Code code) { return kCodes[static_cast<size_t>(code)]; }

Code code_of(isogate_status status) {
  switch (status) {
    case ISOGATE_INVALID_ARGUMENT:
    case ISOGATE_NOT_REGULAR:
      return Code::kInvalidRequest;
    case ISOGATE_NOT_FOUND:
      return Code::kFileNotFound;
    case ISOGATE_ALREADY_EXISTS:
      return Code::kAlreadyExists;
    case ISOGATE_PERMISSION_DENIED:
      return Code::kPermissionDenied;
    case ISOGATE_UNSUPPORTED:
      return Code::kUnsupported;
    case ISOGATE_UNAVAILABLE:
    case ISOGATE_NO_SANDBOX:
    case ISOGATE_CANCELLED:
      return Code::kBackendUnavailable;
    case ISOGATE_LOST:
      return Code::kOutcomeUnknown;
    case ISOGATE_SANDBOX_LOST:
      return Code::kSandboxLost;
    case ISOGATE_IS_DIRECTORY:
      return Code::kIsDirectory;
    default:
      return Code::kInternal;
  }
}

// What is there again when something ends is worth another try: processes, descriptors, memory. Room on a
// disk is not.
ApiError exhausted(const Error& error) {
  switch (error.os_errno) {
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {.code = Code::kRateLimited, .message = error.message, .retry_after_sec = 1};
    case EBUSY:
      return {.code = Code::kFileBusy, .message = error.message, .retry_after_sec = 1};
    case EFBIG:
      return {.code = Code::kFileTooLarge, .message = error.message};
    default:
      return {.code = Code::kQuotaExceeded, .message = error.message};
  }
}

}  // namespace

unsigned ApiError::http_status() const { return row(code).status; }

std::string_view ApiError::code_text() const { return row(code).text; }

RpcCode rpc_code(const ApiError& error) { return row(error.code).rpc; }

std::string ApiError::body(std::string_view request_id) const {
  return opening() + (details_json.empty() ? "{}" : details_json) + closing(request_id);
}

std::string ApiError::opening() const {
  std::string out = R"({"error":{"code":")";
  out += code_text();
  out += R"(","message":)";
  append_json_string(out, is_utf8(message) ? message : printable(message, 1000));
  out += row(code).retryable && !permanent ? R"(,"retryable":true,"details":)"
                                           : R"(,"retryable":false,"details":)";
  return out;
}

std::string ApiError::closing(std::string_view request_id) {
  std::string out = R"(},"request_id":)";
  append_json_string(out, request_id);
  out += "}\n";
  return out;
}

ApiError draining() {
  return {.code = Code::kDraining, .message = "the gateway is shutting down", .retry_after_sec = 5};
}

ApiError invalid_request(std::string message) {
  return {.code = Code::kInvalidRequest, .message = std::move(message)};
}

std::string ApiError::fault() const {
  const size_t first = message.find('`');
  if (!of_file || first == std::string::npos) return message;
  constexpr size_t kWhole = 900;  // a longer one may have been cut within a path
  const bool cut = message.size() > kWhole || std::count(message.begin(), message.end(), '`') % 2 != 0;
  return message.substr(0, first) + "`…`" + (cut ? "" : message.substr(message.rfind('`') + 1));
}

ApiError from_backend(const Error& error) {
  if (error.status == ISOGATE_RESOURCE_EXHAUSTED) return exhausted(error);
  ApiError made{.code = code_of(error.status), .message = error.message};
  if (made.code == Code::kBackendUnavailable) made.retry_after_sec = 1;
  return made;
}

}  // namespace isogate::front
