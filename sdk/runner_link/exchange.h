// One side of a session that outlives its streams (isogate/runner_resume.h): what it sends is kept until the
// other side acknowledges it, and sent again on the next stream. Both the link and isogate-runner use it.
// Pure: no descriptor, no lock, no thread.
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

constexpr size_t kShort = 1024;  // bytes that the gateway adds although there is no room

class Exchange {
 public:
  // Bytes to be sent. The caller honors room(), but for short frames, and for the rest of one that it began.
  void add(std::string_view bytes) { kept_ += bytes; }
  [[nodiscard]] size_t room() const;
  [[nodiscard]] size_t kept() const { return kept_.size() - gone_; }
  void add_goodbye() { goodbye_added_ = true; }  // goes before what is not sent yet

  // What goes on the stream now; empty: nothing. It stays until took().
  std::string_view next();
  void took(size_t size) { wire_done_ += size; }
  [[nodiscard]] bool has_more() const;

  // Processes bytes from the stream. Returns how many bytes of the other side it left at the start of
  // `bytes`.
  size_t receive(std::span<char> bytes);
  [[nodiscard]] uint64_t received() const { return received_; }
  [[nodiscard]] bool is_over() const { return over_; }        // the other side sent a goodbye
  [[nodiscard]] const char* fault() const { return fault_; }  // how the protocol was broken; null: it was not

  // Whether the other side of this session can have received so many bytes.
  [[nodiscard]] bool can_resume(uint64_t received) const {
    return received >= acknowledged_ && received <= std::max(sent_, most_sent_);
  }
  // Begins a new stream, whose other side has received so many bytes. False: it cannot have; nothing changes.
  bool resume(uint64_t received);

 private:
  bool take_head();
  void forget(uint64_t received);

  std::string kept_;  // bytes from acknowledged_ on, behind `gone_` that are acknowledged
  size_t gone_ = 0;
  uint64_t acknowledged_ = 0, sent_ = 0;  // of all bytes; sent_: on this stream
  uint64_t most_sent_ = 0;                // on an earlier one
  std::string wire_;                      // a chunk under way
  size_t wire_done_ = 0;
  bool goodbye_added_ = false, goodbye_sent_ = false;

  std::array<char, sizeof(isogate_runner_chunk)> head_{};
  size_t head_size_ = 0, payload_left_ = 0;
  uint64_t received_ = 0, received_reported_ = 0;  // received_reported_: acknowledged by this side
  bool over_ = false;
  const char* fault_ = nullptr;
};

}  // namespace isogate::sdk::link
