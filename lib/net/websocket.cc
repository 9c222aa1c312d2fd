#include "lib/net/websocket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "isogate/backend.hpp"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::net {
namespace {

constexpr unsigned char kFinal = 0x80, kReserved = 0x70, kOpcode = 0x0f, kMasked = 0x80, kLength = 0x7f;
constexpr unsigned char kTwoBytes = 126, kEightBytes = 127;

}  // namespace

size_t FrameReader::head_needed() const {
  if (head_size_ < 2) return 2;
  const unsigned char length = head_[1] & kLength;
  return length == kEightBytes ? 10 : length == kTwoBytes ? 4 : 2;
}

FrameReader::Step FrameReader::fail(const char* why, size_t taken) {
  why_ = why;
  return {.event = Event::kBroken, .taken = taken};
}

// Null, or what is wrong with it.
const char* FrameReader::begin_frame() {
  if ((head_[0] & kReserved) != 0) return "a frame has reserved bits";
  if ((head_[1] & kMasked) != 0) return "a server's frame is masked";
  const unsigned char length = head_[1] & kLength;
  left_ = length;
  if (length >= kTwoBytes) {
    left_ = 0;
    for (size_t i = 2; i < head_size_; ++i) left_ = left_ << 8 | head_[i];
    const uint64_t least = length == kTwoBytes ? kTwoBytes : 0x10000;
    if (left_ < least) return "a frame's length is not the shortest";
  }
  too_big_ = left_ > kFrameMost;
  if (too_big_) return "a frame is too big";
  final_ = (head_[0] & kFinal) != 0;
  opcode_ = static_cast<Opcode>(head_[0] & kOpcode);
  head_size_ = 0;
  in_frame_ = true;
  switch (opcode_) {
    case Opcode::kContinuation:
      begins_ = false;
      return in_message_ ? nullptr : "a frame continues nothing";
    case Opcode::kText:
    case Opcode::kBinary:
      text_ = opcode_ == Opcode::kText;
      if (text_ && !takes_text_) return "a frame is of an unknown kind";
      if (in_message_) return "a message begins within another";
      in_message_ = begins_ = true;
      return nullptr;
    case Opcode::kClose:
    case Opcode::kPing:
    case Opcode::kPong:
      control_size_ = 0;
      return final_ && left_ <= kControlMost ? nullptr : "a control frame is too long or in parts";
    default:
      return "a frame is of an unknown kind";
  }
}

bool FrameReader::carries_data() const {
  return opcode_ == Opcode::kText || opcode_ == Opcode::kBinary || opcode_ == Opcode::kContinuation;
}

FrameReader::Step FrameReader::control(std::string_view in, size_t taken) {
  const size_t size = std::min<uint64_t>(left_, in.size() - taken);
  std::memcpy(control_.data() + control_size_, in.data() + taken, size);
  control_size_ += size;
  left_ -= size;
  taken += size;
  if (left_ > 0) return {.event = Event::kMore, .taken = taken};
  in_frame_ = false;
  const Event event = opcode_ == Opcode::kPing   ? Event::kPing
                      : opcode_ == Opcode::kPong ? Event::kPong
                                                 : Event::kClose;
  return {.event = event, .taken = taken, .data = {control_.data(), control_size_}};
}

FrameReader::Step FrameReader::next(std::string_view in) {
  if (why_ != nullptr) return fail(why_, 0);
  size_t taken = 0;
  for (;;) {
    if (!in_frame_) {
      while (head_size_ < head_needed() && taken < in.size())
        head_[head_size_++] = static_cast<unsigned char>(in[taken++]);
      if (head_size_ < head_needed()) return {.event = Event::kMore, .taken = taken};
      if (const char* why = begin_frame()) return fail(why, taken);
      if (!carries_data()) continue;
      if (left_ == 0 && begins_) {  // a message without a byte, or whose first frame is empty
        begins_ = false;
        return {.event = Event::kData, .taken = taken, .data = {}, .begins = true, .text = text_};
      }
    }
    if (!carries_data()) return control(in, taken);
    if (left_ == 0) {
      in_frame_ = false;
      if (final_) in_message_ = false;
      if (final_ && text_) return {.event = Event::kTextEnd, .taken = taken};
      continue;
    }
    const size_t size = std::min<uint64_t>(left_, in.size() - taken);
    if (size == 0) return {.event = Event::kMore, .taken = taken};
    const bool begins = begins_;
    begins_ = false;
    return {.event = Event::kData,
            .taken = taken,
            .data = in.substr(taken, size),
            .begins = begins,
            .text = text_};
  }
}

Mask new_mask() {
  Mask mask;
  random_bytes(mask.size()).copy(reinterpret_cast<char*>(mask.data()), mask.size());
  return mask;
}

size_t write_head(char* to, Opcode opcode, uint64_t size, const Mask& mask) {
  char* at = to;
  const int extra = size < kTwoBytes ? 0 : size <= 0xffff ? 2 : 8;
  *at++ = static_cast<char>(kFinal | static_cast<unsigned char>(opcode));
  *at++ = static_cast<char>(kMasked | (extra == 0 ? size : extra == 2 ? kTwoBytes : kEightBytes));
  for (int shift = 8 * (extra - 1); shift >= 0; shift -= 8) *at++ = static_cast<char>(size >> shift & 255);
  std::memcpy(at, mask.data(), mask.size());
  return static_cast<size_t>(at - to) + mask.size();
}

void apply_mask(char* bytes, size_t size, const Mask& mask) {
  uint64_t wide = 0;
  for (int half = 0; half < 2; ++half)
    std::memcpy(reinterpret_cast<char*>(&wide) + half * mask.size(), mask.data(), mask.size());
  size_t at = 0;
  for (; at + sizeof wide <= size; at += sizeof wide) {
    uint64_t part = 0;
    std::memcpy(&part, bytes + at, sizeof part);
    part ^= wide;
    std::memcpy(bytes + at, &part, sizeof part);
  }
  for (; at < size; ++at) bytes[at] = static_cast<char>(bytes[at] ^ mask[at % mask.size()]);
}

void append_message(std::string& to, Opcode opcode, std::string_view payload) {
  const Mask mask = new_mask();
  std::array<char, kHeadMost> head{};
  to.append(head.data(), write_head(head.data(), opcode, payload.size(), mask));
  const size_t begin = to.size();
  to += payload;
  apply_mask(to.data() + begin, payload.size(), mask);
}

std::string close_payload(uint16_t code) {
  return {static_cast<char>(code >> 8), static_cast<char>(code & 255)};
}

std::string new_websocket_key() { return base64_encode(random_bytes(16)); }

std::string websocket_accept(const std::string& key) {
  const std::string text = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1)
    throw sdk::Error(ISOGATE_INTERNAL, "cannot compute a SHA-1");
  return base64_encode({reinterpret_cast<const char*>(digest.data()), size});
}

}  // namespace isogate::net
