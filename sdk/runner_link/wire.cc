#include "wire.h"

#include <algorithm>

#include "isogate/backend.hpp"

#ifndef ISOGATE_VERSION
#define ISOGATE_VERSION "unknown"
#endif

namespace isogate::sdk::link {
namespace {

constexpr size_t kHead = sizeof(isogate_runner_frame);
constexpr uint8_t kClient = static_cast<uint8_t>(Sender::kClient),
                  kRunner = static_cast<uint8_t>(Sender::kRunner);

struct Rule {
  uint16_t type;
  uint8_t senders;
  bool of_connection;    // on stream 0; others on a stream of their own
  bool descriptors;      // may come with it
  uint32_t least, most;  // of its size
};

constexpr Rule kRules[] = {
    {ISOGATE_RUNNER_HELLO, kClient | kRunner, true, false, sizeof(isogate_runner_hello),
     sizeof(isogate_runner_hello)},
    {ISOGATE_RUNNER_EXEC, kClient, false, true, sizeof(isogate_runner_exec), ISOGATE_RUNNER_MAX_REQUEST},
    {ISOGATE_RUNNER_FILE, kClient, false, true, sizeof(isogate_runner_file), ISOGATE_RUNNER_MAX_FRAME},
    {ISOGATE_RUNNER_EVIDENCE, kClient, false, false, sizeof(isogate_runner_measure),
     ISOGATE_RUNNER_MAX_FRAME},
    {ISOGATE_RUNNER_PROVE, kClient, false, false, 0, 0},
    {ISOGATE_RUNNER_CONNECT, kClient, false, true, sizeof(isogate_runner_connect),
     sizeof(isogate_runner_connect)},
    {ISOGATE_RUNNER_CONTROL, kClient, false, false, sizeof(isogate_control), sizeof(isogate_control)},
    {ISOGATE_RUNNER_CANCEL, kClient, false, false, 0, 0},
    {ISOGATE_RUNNER_PING, kClient, true, false, 0, 64},
    {ISOGATE_RUNNER_DATA, kClient | kRunner, false, false, sizeof(isogate_runner_channel),
     ISOGATE_RUNNER_MAX_FRAME},
    {ISOGATE_RUNNER_END, kClient | kRunner, false, false, sizeof(isogate_runner_channel),
     sizeof(isogate_runner_channel)},
    {ISOGATE_RUNNER_CREDIT, kClient | kRunner, false, false, sizeof(isogate_runner_channel),
     sizeof(isogate_runner_channel)},
    {ISOGATE_RUNNER_RESULT, kRunner, false, false, sizeof(isogate_runner_result) + 4,
     sizeof(isogate_runner_result) + 4 + kMaxMessage},
    {ISOGATE_RUNNER_ENTRIES, kRunner, false, false, sizeof(isogate_runner_entry), ISOGATE_RUNNER_MAX_FRAME},
    {ISOGATE_RUNNER_PONG, kRunner, true, false, 8, 8},
    {ISOGATE_RUNNER_READY, kRunner, false, false, 0, 0},
    {ISOGATE_RUNNER_REJOIN, kClient, false, false, sizeof(isogate_runner_rejoin),
     sizeof(isogate_runner_rejoin)},
    {ISOGATE_RUNNER_REJOINED, kRunner, false, false, sizeof(isogate_runner_rejoined),
     sizeof(isogate_runner_rejoined)},
};

// One character from the front; 0 where there is none that is valid.
uint32_t decode(std::string_view text, size_t& length) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  length = 1;
  if (lead < 0x80) return lead;
  const size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < wanted) return 0;
  uint32_t code = lead & (0xffU >> (wanted + 1));
  for (size_t i = 1; i < wanted; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3fU);
  }
  const uint32_t least = wanted == 4 ? 0x10000 : wanted == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  length = wanted;
  return code;
}

bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

bool is_sane_path(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name.find('\0') != name.npos) return false;
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = end + 1;
  }
  return true;
}

}  // namespace

FrameWriter::FrameWriter(std::string& out, uint16_t type, uint32_t stream, uint16_t flags)
    : out_(out), start_(out.size()) {
  add(isogate_runner_frame{0, type, flags, stream});
}

FrameWriter::~FrameWriter() {
  const auto size = static_cast<uint32_t>(out_.size() - start_ - sizeof(isogate_runner_frame));
  std::memcpy(out_.data() + start_, &size, sizeof size);
}

FrameWriter& FrameWriter::bytes(std::string_view raw) {
  out_.append(raw);
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view string) {
  return add(static_cast<uint32_t>(string.size())).bytes(string);
}

Fault check_head(const isogate_runner_frame& head, Sender sender) {
  const Rule* const rule = std::find_if(std::begin(kRules), std::end(kRules),
                                        [&](const Rule& one) { return one.type == head.type; });
  if (rule == std::end(kRules) || (rule->senders & static_cast<uint8_t>(sender)) == 0)
    return "a frame of an unknown type";
  const uint32_t flags = rule->descriptors ? ISOGATE_RUNNER_WITH_DESCRIPTORS : 0;
  if ((head.flags & ~flags) != 0) return "a frame with unknown flags";
  if (head.size < rule->least || head.size > rule->most) return "a frame of a wrong size";
  if ((head.stream == 0) != rule->of_connection) return "a frame on a wrong stream";
  return nullptr;
}

std::span<char> Decoder::room() {
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t size = std::max(wanted_, usual_);
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
  if (const Fault fault = check_head(frame.head, sender_)) {
    fault_ = std::string(fault) + " (type " + std::to_string(frame.head.type) + ", " +
             std::to_string(frame.head.size) + " bytes, stream " + std::to_string(frame.head.stream) + ")";
    return Next::kFault;
  }
  wanted_ = kHead + frame.head.size;
  if (end_ - begin_ < wanted_) return Next::kMore;
  frame.payload = {buffer_.data() + begin_ + kHead, frame.head.size};
  begin_ += wanted_;
  wanted_ = kHead;
  return Next::kFrame;
}

isogate_runner_hello make_hello() {
  isogate_runner_hello own{};
  own.magic = ISOGATE_RUNNER_MAGIC;
  own.major = ISOGATE_RUNNER_MAJOR;
  own.minor = ISOGATE_RUNNER_MINOR;
  set_text(own.build, ISOGATE_VERSION);
  return own;
}

std::string encode_result(const isogate_runner_result& result, std::string_view message) {
  message = message.substr(0, kMaxMessage);
  const auto length = static_cast<uint32_t>(message.size());
  return std::string(bytes_of(result)).append(bytes_of(length)).append(message);
}

Fault read_result(std::string_view payload, isogate_runner_result& result, std::string& message) {
  uint32_t length = 0;
  if (!take(payload, result) || !take(payload, length) || payload.size() != length)
    return "a result of a wrong size";
  message = result.status != ISOGATE_OK ? clean(payload) : std::string(payload);
  return nullptr;
}

void append_entry(std::string& entries, isogate_runner_entry entry, std::string_view name) {
  entry.name_length = static_cast<uint32_t>(name.size());
  entries.append(bytes_of(entry)).append(name);
}

Fault check_entries(std::string_view payload) {
  while (!payload.empty()) {
    isogate_runner_entry entry{};
    if (!take(payload, entry) || entry.name_length > kMaxName || entry.name_length > payload.size())
      return "entries of a wrong size";
    payload.remove_prefix(entry.name_length);
  }
  return nullptr;
}

std::string_view take_entry(std::string_view& entries, isogate_runner_entry& entry) {
  if (!take(entries, entry)) return {};
  const std::string_view name = entries.substr(0, entry.name_length);
  entries.remove_prefix(name.size());
  return name;
}

bool is_sane(const isogate_runner_entry& entry, std::string_view name) {
  return entry.type >= ISOGATE_ENTRY_REGULAR && entry.type <= ISOGATE_ENTRY_OTHER && entry.reserved == 0 &&
         entry.size <= INT64_MAX && is_sane_path(name);
}

std::string clean(std::string_view text) {
  std::string out;
  while (!text.empty() && out.size() < kMaxMessage) {
    size_t length = 1;
    const uint32_t code = decode(text, length);
    if (is_control(code)) {
      out += '?';
    } else if (out.size() + length <= kMaxMessage) {
      out.append(text.substr(0, length));
    } else {
      break;
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace isogate::sdk::link
