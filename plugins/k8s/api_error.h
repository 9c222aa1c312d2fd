// What goes wrong with a cluster: an sdk::Error that also tells what the API server called it. Its message
// never holds a token, a key or what a credential plugin printed.
#pragma once

#include <string>
#include <string_view>

#include "isogate/backend.hpp"

namespace isogate::k8s {

class ApiError : public sdk::Error {
 public:
  ApiError(isogate_status status, std::string message, int http_status = 0, bool sent = false,
           std::string reason = {})
      : sdk::Error(status, std::move(message)),
        http_status_(http_status),
        sent_(sent),
        reason_(std::move(reason)) {}
  // The API server's answer; 0: there was none.
  [[nodiscard]] int http_status() const { return http_status_; }
  // The request had left and no whole answer came: the API server may have done it, or do it still.
  [[nodiscard]] bool maybe_done() const { return sent_ && http_status_ == 0; }
  // Of the Status object: "NotFound", "AlreadyExists", "Conflict", "Expired", "Forbidden", …; may be empty.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  int http_status_;
  bool sent_;
  std::string reason_;
};

// Bytes that anybody may have made up, as one line of printable text of at most `most` bytes.
std::string printable(std::string_view bytes, size_t most = 300);

// Whether JSON of anybody is nested so little that it can be copied: that is done by recursion.
bool is_shallow(std::string_view json);

// An answer other than the wanted one, a Status object as a rule: "cannot `attempt`: the API server answered
// 409 AlreadyExists: …". 404 and 410 are ISOGATE_NOT_FOUND, but 410 Expired of a list or watch is
// ISOGATE_UNAVAILABLE; 409 AlreadyExists is ISOGATE_ALREADY_EXISTS, other 409s, 429 and 5xx are
// ISOGATE_UNAVAILABLE; 401 and 403 ISOGATE_PERMISSION_DENIED; 400, 413 and 422 ISOGATE_INVALID_ARGUMENT.
// `name`: of the object that was asked for; a 404 of anything else, as of its namespace, says nothing of it
// and is ISOGATE_UNAVAILABLE. Empty: none was.
ApiError refusal(const std::string& attempt, int http_status, std::string_view body,
                 std::string_view name = {});

}  // namespace isogate::k8s
