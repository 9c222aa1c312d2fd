// The bytes of the runner protocol: frames that are sent, and what the runner's frames bring, checked.
// Nothing here has state; all of it may be called by any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "isogate/runner_protocol.h"

namespace isogate::sdk::link {

static_assert(std::endian::native == std::endian::little, "structs are sent as they lie in memory");
static_assert(sizeof(isogate_runner_frame) == 12 && sizeof(isogate_runner_hello) == 64);
static_assert(sizeof(isogate_runner_exec) == 24 && sizeof(isogate_runner_file) == 40);
static_assert(sizeof(isogate_runner_measure) == 8 && sizeof(isogate_runner_channel) == 8);
static_assert(sizeof(isogate_runner_entry) == 32 && sizeof(isogate_runner_result) == 224);

// How the runner broke the protocol, for a person; nullptr: it did not.
using Fault = const char*;

// Appends one frame to `out`. Its size stands when the writer is destroyed.
class FrameWriter {
 public:
  FrameWriter(std::string& out, uint16_t type, uint32_t stream, uint16_t flags = 0);
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  template <typename Struct>
  FrameWriter& add(const Struct& fixed) {
    return bytes({reinterpret_cast<const char*>(&fixed), sizeof fixed});
  }
  FrameWriter& bytes(std::string_view raw);
  FrameWriter& text(std::string_view string);  // with its length

 private:
  std::string& out_;
  size_t start_;
};

struct Frame {
  isogate_runner_frame head;
  std::string_view payload;
};

// Takes a struct from the front; false when there are not enough bytes.
template <typename Struct>
bool take(std::string_view& from, Struct& to) {
  if (from.size() < sizeof to) return false;
  std::memcpy(&to, from.data(), sizeof to);
  from.remove_prefix(sizeof to);
  return true;
}

// Of a head, before its payload is waited for: type, flags and size are ones that a runner may send.
Fault check_head(const isogate_runner_frame& head);
// RESULT. `message` is cleaned, and empty for a success.
Fault read_result(std::string_view payload, isogate_runner_result& result, std::string& message);
// ENTRIES: whole ones, with names of at most 4,095 bytes, and no byte beside.
Fault check_entries(std::string_view payload);
// The next of what check_entries() accepted.
std::string_view take_entry(std::string_view& entries, isogate_runner_entry& entry);
// What a LIST may name: a path below the directory, and a type, size and mode that exist.
bool is_sane(const isogate_runner_entry& entry, std::string_view name);

// Valid UTF-8 without control or direction characters: each byte or character that is not becomes `?`.
std::string clean(std::string_view text);

}  // namespace isogate::sdk::link
