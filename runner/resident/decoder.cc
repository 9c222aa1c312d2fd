#include "runner/resident/decoder.h"

#include <algorithm>
#include <cstring>

#include "isogate/backend.h"

namespace isogate::resident {
namespace {

constexpr size_t kHead = sizeof(isogate_runner_frame);
constexpr size_t kUsual = kHead + ISOGATE_RUNNER_MAX_FRAME;

struct Rule {
  uint16_t type;
  uint32_t least, most;  // of its size
  bool of_connection;    // stream 0; else any other
  bool descriptors;      // may come with it
};

constexpr Rule kRules[] = {
    {ISOGATE_RUNNER_HELLO, sizeof(isogate_runner_hello), sizeof(isogate_runner_hello), true, false},
    {ISOGATE_RUNNER_EXEC, sizeof(isogate_runner_exec), ISOGATE_RUNNER_MAX_REQUEST, false, true},
    {ISOGATE_RUNNER_FILE, sizeof(isogate_runner_file), ISOGATE_RUNNER_MAX_FRAME, false, true},
    {ISOGATE_RUNNER_EVIDENCE, sizeof(isogate_runner_measure), ISOGATE_RUNNER_MAX_FRAME, false, false},
    {ISOGATE_RUNNER_PROVE, 0, 0, false, false},
    {ISOGATE_RUNNER_CONTROL, sizeof(isogate_control), sizeof(isogate_control), false, false},
    {ISOGATE_RUNNER_CANCEL, 0, 0, false, false},
    {ISOGATE_RUNNER_PING, 0, 64, true, false},
    {ISOGATE_RUNNER_DATA, sizeof(isogate_runner_channel), ISOGATE_RUNNER_MAX_FRAME, false, false},
    {ISOGATE_RUNNER_END, sizeof(isogate_runner_channel), sizeof(isogate_runner_channel), false, false},
    {ISOGATE_RUNNER_CREDIT, sizeof(isogate_runner_channel), sizeof(isogate_runner_channel), false, false},
};

}  // namespace

std::string fault_of(const isogate_runner_frame& head) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& one) { return one.type == head.type; });
  const std::string name = "a frame of type " + std::to_string(head.type);
  if (rule == std::end(kRules)) return name + ", which no client sends";
  if (head.size < rule->least || head.size > rule->most)
    return name + " with " + std::to_string(head.size) + " bytes";
  const uint32_t flags = rule->descriptors ? ISOGATE_RUNNER_WITH_DESCRIPTORS : 0;
  if ((head.flags & ~flags) != 0) return name + " with unknown flags";
  if ((head.stream == 0) != rule->of_connection) return name + " on stream " + std::to_string(head.stream);
  return "";
}

std::span<char> Decoder::room() {
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t size = std::max(wanted_, kUsual);
  if (begin_ > 0 && (begin_ + wanted_ > buffer_.size() || end_ == buffer_.size())) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < size) buffer_.resize(size);
  if (end_ == 0 && buffer_.size() > size) {
    buffer_.resize(size);
    buffer_.shrink_to_fit();
  }
  return {buffer_.data() + end_, buffer_.size() - end_};
}

Decoder::Next Decoder::next(Frame& frame) {
  if (!fault_.empty()) return Next::kFault;
  wanted_ = kHead;
  if (end_ - begin_ < kHead) return Next::kMore;
  std::memcpy(&frame.head, buffer_.data() + begin_, kHead);
  fault_ = fault_of(frame.head);
  if (!fault_.empty()) return Next::kFault;
  wanted_ = kHead + frame.head.size;
  if (end_ - begin_ < wanted_) return Next::kMore;
  frame.payload = {buffer_.data() + begin_ + kHead, frame.head.size};
  begin_ += wanted_;
  wanted_ = kHead;
  return Next::kFrame;
}

}  // namespace isogate::resident
