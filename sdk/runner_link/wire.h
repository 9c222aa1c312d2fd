// The bytes of the runner protocol (isogate/runner_protocol.h), for both ends: frames that are sent, frames
// that are received, and what they hold, checked. Each end passes the other's role and so accepts only the
// frames that role may send. Decoder aside nothing here has state; all of it may be called by any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/runner_protocol.h"

namespace isogate::sdk::link {

static_assert(std::endian::native == std::endian::little, "structs are sent as they lie in memory");
static_assert(sizeof(isogate_runner_frame) == 12 && sizeof(isogate_runner_hello) == 64);
static_assert(sizeof(isogate_runner_exec) == 24 && sizeof(isogate_runner_file) == 40);
static_assert(sizeof(isogate_runner_limit) == 16 && sizeof(isogate_runner_limits) == 8);
static_assert(sizeof(isogate_runner_connect) == 8);
static_assert(sizeof(isogate_runner_measure) == 8 && sizeof(isogate_runner_channel) == 8);
static_assert(sizeof(isogate_runner_entry) == 32 && sizeof(isogate_runner_result) == 200);

// How the other end broke the protocol, for a person; nullptr: it did not.
using Fault = const char*;

enum class Sender : uint8_t { kClient = 1, kRunner = 2 };

constexpr size_t kMaxMessage = 1000;  // of a result, bytes
constexpr size_t kMaxName = 4095;     // of an entry, bytes

// A struct as it lies on the wire.
template <typename Struct>
std::string_view bytes_of(const Struct& fixed) {
  return {reinterpret_cast<const char*>(&fixed), sizeof fixed};
}

// Appends one frame to `out`. Its size stands when the writer is destroyed.
class FrameWriter {
 public:
  FrameWriter(std::string& out, uint16_t type, uint32_t stream, uint16_t flags = 0);
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  template <typename Struct>
  FrameWriter& add(const Struct& fixed) {
    return bytes(bytes_of(fixed));
  }
  FrameWriter& bytes(std::string_view raw);
  FrameWriter& text(std::string_view string);  // with its length

 private:
  std::string& out_;
  size_t start_;
};

struct Frame {
  isogate_runner_frame head{};
  std::string_view payload;
};

// Splits a byte stream into frames of one sender. Pure: no descriptor, no clock, no thread. Nothing is
// allocated for a frame before its header has been checked: at most one frame beyond `usual` bytes is held at
// a time.
class Decoder {
 public:
  enum class Next { kFrame, kMore, kFault };

  explicit Decoder(Sender sender, size_t usual = sizeof(isogate_runner_frame) + ISOGATE_RUNNER_MAX_FRAME)
      : sender_(sender), usual_(usual) {}
  // Where the next bytes of the stream belong; never empty. took() reports how many there are.
  std::span<char> room();
  void took(size_t bytes) { end_ += bytes; }
  // The payload is valid until the next room(). After kFault the stream yields nothing more.
  Next next(Frame& frame);
  [[nodiscard]] const std::string& fault() const { return fault_; }
  [[nodiscard]] bool is_within_frame() const { return begin_ < end_; }

 private:
  const Sender sender_;
  const size_t usual_;  // of the buffer, bytes
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  size_t wanted_ = sizeof(isogate_runner_frame);  // bytes of the frame at begin_
  std::string fault_;
};

// Takes a struct from the front; false when there are not enough bytes.
template <typename Struct>
bool take(std::string_view& from, Struct& to) {
  if (from.size() < sizeof to) return false;
  std::memcpy(&to, from.data(), sizeof to);
  from.remove_prefix(sizeof to);
  return true;
}

// Of a head, before its payload is awaited: type, flags, size and stream are ones that `sender` may send.
Fault check_head(const isogate_runner_frame& head, Sender sender);

// HELLO of this build; the rest is for its sender to fill in.
isogate_runner_hello make_hello();

// The payload of RESULT. `message` is cut at kMaxMessage bytes.
std::string encode_result(const isogate_runner_result& result, std::string_view message);
// RESULT. `message` is cleaned; of a success it is the bytes that came with it.
Fault read_result(std::string_view payload, isogate_runner_result& result, std::string& message);
// The next of ENTRIES; its name_length becomes that of the name, at most kMaxName bytes.
void append_entry(std::string& entries, isogate_runner_entry entry, std::string_view name);
// ENTRIES: whole ones, with names of at most 4,095 bytes, and no byte beside.
Fault check_entries(std::string_view payload);
// The next of what check_entries() accepted.
std::string_view take_entry(std::string_view& entries, isogate_runner_entry& entry);
// What a LIST may name: a path below the directory, and a type, size and mode that exist.
bool is_sane(const isogate_runner_entry& entry, std::string_view name);

// Valid UTF-8 without control or direction characters: each byte or character that is not becomes `?`.
std::string clean(std::string_view text);

}  // namespace isogate::sdk::link
