// The client's side of RFC 6455's frames. No input, no output, no allocation by a peer's claims. One
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace isogate::net {

enum class Opcode : uint8_t { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

// Parses a server's bytes. Messages come in pieces as their bytes arrive, control frames whole. Text messages
// break the protocol unless `takes_text`.
class FrameReader {
 public:
  static constexpr uint64_t kFrameMost = uint64_t{64} << 20;

  explicit FrameReader(bool takes_text = false) : takes_text_(takes_text) {}

  enum class Event { kMore, kData, kPing, kPong, kClose, kBroken, kTextEnd };
  struct Step {
    Event event = Event::kMore;
    size_t taken = 0;       // of `in`, before `data`
    std::string_view data;  // kData: into `in`, may be empty; a control frame's payload: valid until next()
    bool begins = false;    // kData: of a message
    bool text = false;      // kData: of a text message, after whose last byte comes kTextEnd
  };
  // kMore: all of `in` is taken. kData: call took() next. After kBroken no other result follows.
  Step next(std::string_view in);
  // How much of kData's `data` was used; the rest comes again.
  void took(size_t size) { left_ -= size; }
  [[nodiscard]] const char* why() const { return why_; }  // kBroken
  [[nodiscard]] bool too_big() const { return too_big_; }

 private:
  [[nodiscard]] size_t head_needed() const;
  const char* begin_frame();
  [[nodiscard]] bool carries_data() const;
  Step fail(const char* why, size_t taken);
  Step control(std::string_view in, size_t taken);

  static constexpr size_t kControlMost = 125;
  bool takes_text_;
  std::array<unsigned char, 10> head_{};
  size_t head_size_ = 0;
  uint64_t left_ = 0;  // of the frame
  Opcode opcode_ = Opcode::kBinary;
  bool final_ = false, in_frame_ = false, in_message_ = false, begins_ = false, too_big_ = false,
       text_ = false;
  std::array<char, kControlMost> control_{};
  size_t control_size_ = 0;
  const char* why_ = nullptr;
};

// A frame's head with its mask; `size` bytes of payload have to follow, masked by apply_mask().
constexpr size_t kHeadMost = 14;
using Mask = std::array<unsigned char, 4>;
Mask new_mask();                                                              // unpredictable
size_t write_head(char* to, Opcode opcode, uint64_t size, const Mask& mask);  // its size
void apply_mask(char* bytes, size_t size, const Mask& mask);
// A whole message, or a control frame, whose payload has at most 125 bytes.
void append_message(std::string& to, Opcode opcode, std::string_view payload);
std::string close_payload(uint16_t code);

// Of the handshake: a new key, and the reply that the server must send.
std::string new_websocket_key();
std::string websocket_accept(const std::string& key);

}  // namespace isogate::net
