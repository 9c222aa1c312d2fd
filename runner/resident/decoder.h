// Takes a byte stream apart into frames (isogate/runner_protocol.h). Pure: no descriptor, no clock, no
// thread.
//
// Nothing is allocated for a frame before its head has been checked: at most one frame is held at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/runner_protocol.h"

namespace isogate::resident {

struct Frame {
  isogate_runner_frame head{};
  std::string_view payload;  // valid until the next room()
};

class Decoder {
 public:
  enum class Next { kFrame, kMore, kFault };

  // Where the next bytes of the stream belong; never empty. took() says how many there are.
  std::span<char> room();
  void took(size_t bytes) { end_ += bytes; }
  // After kFault nothing more can be had of this stream.
  Next next(Frame& frame);
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  size_t wanted_ = sizeof(isogate_runner_frame);  // bytes of the frame at begin_
  std::string fault_;
};

// Why a client may not send such a frame; empty: it may.
std::string fault_of(const isogate_runner_frame& head);

}  // namespace isogate::resident
