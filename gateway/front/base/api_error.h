// A refusal as the caller sees it: the error object of the contract, with its HTTP status.
//
// Thrown by code that refuses a request, from its head to its exec; the connection turns it into a
// response.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "lib/error.h"

namespace isogate::front {

// The stable codes of the contract. `kCodes` in the source gives each its text, status, retryable and
// RpcCode.
enum class Code {
  kInvalidRequest,
  kUnauthenticated,
  kPermissionDenied,
  kFileNotFound,
  kSandboxNotFound,
  kExecNotFound,
  kNotFound,
  kMethodNotAllowed,
  kRequestTimeout,
  kIsDirectory,
  kAlreadyExists,
  kFileBusy,
  kExecEnded,
  kAlreadyAttached,
  kSandboxLost,
  kOutputDropped,
  kFileTooLarge,
  kUnsupportedMediaType,
  kRangeNotSatisfiable,
  kMisdirectedRequest,
  kRateLimited,
  kInternal,
  kUnsupported,
  kOutcomeUnknown,
  kPortClosed,
  kBackendUnavailable,
  kDraining,
  kQuotaExceeded,
};
inline constexpr size_t kCodeCount = static_cast<size_t>(Code::kQuotaExceeded) + 1;

struct ApiError {
  Code code = Code::kInternal;
  std::string message;
  std::string details_json;                              // an object, or empty
  unsigned retry_after_sec = 0;                          // Retry-After; 0: none
  std::pair<std::string_view, std::string> header = {};  // one more of the answer; without a name: none
  bool permanent = false;  // retryable: false, although responses with this code usually are
  bool of_file = false;    // of a file call: its message may quote the caller's path, which no log may have

  [[nodiscard]] unsigned http_status() const;
  [[nodiscard]] std::string_view code_text() const;
  // One that an operator may want to know of.
  [[nodiscard]] bool is_fault() const { return http_status() >= 500 && code != Code::kUnsupported; }
  // The message for the log.
  [[nodiscard]] std::string fault() const;
  [[nodiscard]] std::string body(std::string_view request_id) const;
  // The same in two parts, between which `details` belong.
  [[nodiscard]] std::string opening() const;
  [[nodiscard]] static std::string closing(std::string_view request_id);
};

// In the Connect protocol (connectrpc.com/docs/protocol), as E2B's SDKs know it.
struct RpcCode {
  std::string_view text;
  unsigned status = 0;  // of the answer to a single message
};
RpcCode rpc_code(const ApiError& error);

// Why a call is ended whose request would be refused now.
inline constexpr const char* kNoLongerAdmitted =
    "what admitted you (key, certificate or `anonymous`) is no longer accepted";

ApiError invalid_request(std::string message);
ApiError draining();

// What a status of the ABI means to the caller of a file call or of an exec.
ApiError from_backend(const Error& error);

}  // namespace isogate::front
