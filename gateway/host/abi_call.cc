#include "gateway/host/abi_call.h"

#include "gateway/host/text.h"

namespace isogate {
namespace {

const char* meaning(isogate_status status) {
  switch (status) {
    case ISOGATE_INVALID_ARGUMENT:
      return "the request is malformed";
    case ISOGATE_NOT_FOUND:
      return "it does not exist";
    case ISOGATE_ALREADY_EXISTS:
      return "it exists already";
    case ISOGATE_PERMISSION_DENIED:
      return "permission denied";
    case ISOGATE_UNSUPPORTED:
      return "the backend cannot do that";
    case ISOGATE_UNAVAILABLE:
      return "the backend cannot serve now";
    case ISOGATE_CANCELLED:
      return "cancelled before anything was started";
    case ISOGATE_RESOURCE_EXHAUSTED:
      return "a limit has been reached";
    case ISOGATE_IO:
      return "input or output failed";
    case ISOGATE_LOST:
      return "contact was lost after something may have started";
    case ISOGATE_SANDBOX_LOST:
      return "the workspace is gone";
    case ISOGATE_IS_DIRECTORY:
      return "it is a directory";
    case ISOGATE_NOT_REGULAR:
      return "it is not a regular file";
    case ISOGATE_NO_SANDBOX:
      return "there is no such sandbox";
    default:
      return "the plugin failed";
  }
}

}  // namespace

AbiCall::AbiCall(int cancel_fd) {
  call.struct_size = sizeof call;
  call.cancel_fd = cancel_fd;
  call.deadline_ns = INT64_MAX;
  error.struct_size = sizeof error;
}

AbiCall::AbiCall(const ipc::CallHeader& header) : AbiCall(header.cancel.get()) {
  call.deadline_ns = header.deadline_ns;
  call.request_id = abi_str(header.request_id);
}

bool is_known(isogate_status status) { return status >= ISOGATE_OK && status <= ISOGATE_NO_SANDBOX; }

Error plugin_failure(isogate_status status, const isogate_error& error) {
  Error failure;
  const bool known = is_known(status);
  failure.status = known ? status : ISOGATE_INTERNAL;
  failure.os_errno = error.os_errno;
  failure.message = clean_text(error.message);
  if (!known)
    failure.message = "the plugin answered with the unknown status " + std::to_string(status) +
                      (failure.message.empty() ? "" : ": " + failure.message);
  if (failure.message.empty()) failure.message = std::string(meaning(status)) + "; the plugin gave no reason";
  return failure;
}

Error plugin_defect(const std::string& what) {
  return {ISOGATE_INTERNAL, 0, "a defect of the plugin: " + what};
}

}  // namespace isogate
