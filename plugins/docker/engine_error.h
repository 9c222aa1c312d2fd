// What goes wrong with an Engine, as an sdk::Error with two things more that a caller may need to decide
// between "nothing happened" and "contact was lost".
#pragma once

#include <string>
#include <string_view>

#include "isogate/backend.hpp"

namespace isogate::docker {

class EngineError : public sdk::Error {
 public:
  EngineError(isogate_status status, std::string message, int http_status = 0, bool sent = false)
      : sdk::Error(status, std::move(message)), http_status_(http_status), sent_(sent) {}
  // The Engine's answer; 0: there was none.
  [[nodiscard]] int http_status() const { return http_status_; }
  // The request had left and no whole answer came: the Engine may have done it, or do it still.
  [[nodiscard]] bool maybe_done() const { return sent_ && http_status_ == 0; }

 private:
  int http_status_;
  bool sent_;
};

// Bytes that the Engine passed on from anybody, as one line of printable text of at most `most` bytes.
std::string printable(std::string_view bytes, size_t most = 300);

// An answer other than the wanted one: "cannot `attempt`: the Engine answered 409: …". `conflict` is what a
// 409 means for this attempt.
EngineError refusal(const std::string& attempt, int http_status, std::string_view body,
                    isogate_status conflict = ISOGATE_UNAVAILABLE);

}  // namespace isogate::docker
