#include "gateway/front/http/chunk_decoder.h"

#include <algorithm>
#include <cstring>

#include "gateway/front/http/request_head.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

constexpr unsigned kMaxDigits = 15;

bool is_plain(char c) { return c == '\t' || (c >= 0x20 && c < 0x7f); }

}  // namespace

size_t ChunkDecoder::decode(std::string_view& in, char* out, size_t size) {
  size_t made = 0;
  while (!in.empty() && !done() && problem_.empty()) {
    if (state_ != State::kData) {
      step(in.front());
      in.remove_prefix(1);
      continue;
    }
    const auto n = static_cast<size_t>(std::min<uint64_t>({left_, in.size(), size - made}));
    if (n == 0) break;
    std::memcpy(out + made, in.data(), n);
    in.remove_prefix(n);
    made += n;
    left_ -= n;
    if (left_ == 0) state_ = State::kDataCr;
  }
  return made;
}

void ChunkDecoder::step(char c) {
  switch (state_) {
    case State::kSize:
      return size_digit(c);
    case State::kExtension:
      return extension(c);
    case State::kSizeEnd:
      if (c != '\n') return refuse("a chunk's size line does not end in CRLF");
      state_ = left_ == 0 ? State::kTrailer : State::kData;
      digits_ = 0;
      extension_ = 0;
      return;
    case State::kDataCr:
      if (c != '\r') return refuse("a chunk is longer than its size says");
      state_ = State::kDataLf;
      return;
    case State::kDataLf:
      if (c != '\n') return refuse("a chunk does not end in CRLF");
      state_ = State::kSize;
      return;
    case State::kTrailer:
      return trailer(c);
    case State::kTrailerLf:
      if (c != '\n') return refuse("a trailer field does not end in CRLF");
      return trailer_ended();
    case State::kLastLf:
      if (c != '\n') return refuse("the last chunk does not end in CRLF");
      state_ = State::kDone;
      return;
    case State::kData:
    case State::kDone:
      return;
  }
}

void ChunkDecoder::trailer(char c) {
  if (c == '\r') {
    state_ = trailer_.empty() ? State::kLastLf : State::kTrailerLf;
    return;
  }
  if (!is_plain(c)) return refuse("a trailer field holds a control character");
  if (++trailers_ > kMaxTrailer) return refuse("the trailer fields are too long");
  trailer_ += c;
}

void ChunkDecoder::trailer_ended() {
  if (!may_be_trailer(trailer_))
    return refuse("a trailer field is malformed, or one that belongs in the header");
  trailer_.clear();
  state_ = State::kTrailer;
}

void ChunkDecoder::size_digit(char c) {
  if (const int value = hex_value(c); value >= 0) {
    if (++digits_ > kMaxDigits) return refuse("a chunk's size has too many digits");
    left_ = left_ * 16 + static_cast<uint64_t>(value);
    return;
  }
  if (digits_ == 0) return refuse("a chunk has no size");
  if (c == ';') {
    state_ = State::kExtension;
  } else if (c == '\r') {
    state_ = State::kSizeEnd;
  } else {
    refuse("a chunk's size is not a hexadecimal number");
  }
}

void ChunkDecoder::extension(char c) {
  if (c == '\r') {
    state_ = State::kSizeEnd;
    return;
  }
  if (!is_plain(c)) return refuse("a chunk extension holds a control character");
  if (++extension_ > kMaxExtension || ++extensions_ > kMaxExtensions) refuse("a chunk extension is too long");
}

}  // namespace isogate::front
