// Failures of a server on the network.
#pragma once

#include <string>
#include <string_view>

#include "isogate/backend.hpp"

namespace isogate::net {

// ISOGATE_UNAVAILABLE: the server cannot be reached, is late, breaks off or sends an invalid response.
// ISOGATE_CANCELLED. ISOGATE_INVALID_ARGUMENT: a certificate, key or authority cannot be used. Or the
// meaning of a response's status.
class NetError : public sdk::Error {
 public:
  // `sent`: the whole request, or it may be.
  NetError(isogate_status status, std::string message, int http_status = 0, bool sent = false,
           std::string reason = {})
      : sdk::Error(status, std::move(message)),
        http_status_(http_status),
        sent_(sent),
        reason_(std::move(reason)) {}
  // Of TLS: the handshake, the certificates of either side, a key, or a failure afterwards.
  static NetError of_tls(isogate_status status, const std::string& what, const std::string& why,
                         bool sent = false) {
    NetError error(status, what + ": " + why, 0, sent, why);
    error.of_tls_ = true;
    return error;
  }
  // The server's answer; 0: there was none.
  [[nodiscard]] int http_status() const { return http_status_; }
  // The request was sent and no complete response came: the server may have executed it, or may
  // still do so.
  [[nodiscard]] bool maybe_done() const { return sent_ && http_status_ == 0; }
  [[nodiscard]] bool of_tls() const { return of_tls_; }
  // The failure's name where its source has one: of a Kubernetes Status "NotFound", "AlreadyExists",
  // "Conflict", "Expired", "Forbidden", …; of TLS the part of what() that says why. May be empty.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  // The same error: "cannot `attempt`: …".
  [[nodiscard]] NetError during(const std::string& attempt) const {
    NetError error(status(), "cannot " + attempt + ": " + what(), http_status_, sent_, reason_);
    error.of_tls_ = of_tls_;
    return error;
  }

 private:
  int http_status_;
  bool sent_;
  bool of_tls_ = false;
  std::string reason_;
};

// False: `work` threw a NetError with ISOGATE_NOT_FOUND. Other failures go on.
template <typename Work>
bool unless_gone(const Work& work) {
  try {
    work();
    return true;
  } catch (const NetError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    return false;
  }
}

// Bytes of any origin as one line of printable ASCII; cut to about `most` bytes, then "…".
std::string one_line(std::string_view bytes, size_t most = 300);

}  // namespace isogate::net
