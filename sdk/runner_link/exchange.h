// One side of a session that outlives its streams (isogate/runner_resume.h): what it said is kept until the
// other side has it, and said again on the next stream. The link and isogate-runner both use it. Pure: no
// descriptor, no lock, no thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isogate/runner_resume.h"

namespace isogate::sdk::link {

class Exchange {
 public:
  // Bytes to be sent, beyond room() too: that is for the caller to heed.
  void say(std::string_view bytes) { kept_ += bytes; }
  [[nodiscard]] size_t room() const;
  [[nodiscard]] size_t kept() const { return kept_.size() - gone_; }
  void say_goodbye() { goodbye_said_ = true; }  // goes before what was not sent yet

  // What goes on the stream now; empty: nothing. It stays until took().
  std::string_view next();
  void took(size_t size) { wire_done_ += size; }
  [[nodiscard]] bool has_more() const;

  // What came from the stream: the bytes of the other side are left at the begin of `bytes`, so many.
  size_t hear(std::span<char> bytes);
  [[nodiscard]] uint64_t heard() const { return heard_; }
  [[nodiscard]] bool is_over() const { return over_; }        // the other side said goodbye
  [[nodiscard]] const char* fault() const { return fault_; }  // against the protocol; null: none

  // Whether another side that has had so many bytes can be this one's.
  [[nodiscard]] bool can_resume(uint64_t received) const {
    return received >= acknowledged_ && received <= std::max(sent_, most_sent_);
  }
  // Begins with a new stream, whose other side has had so many bytes. False: it cannot have; nothing is
  // changed.
  bool resume(uint64_t received);

 private:
  bool take_head();
  void forget(uint64_t received);

  std::string kept_;  // what was said from acknowledged_ on, behind `gone_` bytes that are done with
  size_t gone_ = 0;
  uint64_t acknowledged_ = 0, sent_ = 0;  // of all that was said; sent_: on this stream
  uint64_t most_sent_ = 0;                // on an earlier one
  std::string wire_;                      // a chunk under way
  size_t wire_done_ = 0;
  bool goodbye_said_ = false, goodbye_sent_ = false;

  std::array<char, sizeof(isogate_runner_chunk)> head_{};
  size_t head_size_ = 0, payload_left_ = 0;
  uint64_t heard_ = 0, told_ = 0;  // told_: acknowledged by this side
  bool over_ = false;
  const char* fault_ = nullptr;
};

}  // namespace isogate::sdk::link
