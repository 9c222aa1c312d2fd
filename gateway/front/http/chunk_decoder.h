// A chunked body, byte by byte (RFC 9112, section 7.1), strictly: CRLF and nothing else ends a line, a size
// is at most 15 hex digits, extensions are short and skipped; trailer fields are few, checked like headers,
// and dropped. A trailer field may not be a header that affects the request. Pure; fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isogate::front {

class ChunkDecoder {
 public:
  static constexpr size_t kMaxExtension = 256;         // of one chunk
  static constexpr size_t kMaxExtensions = 16 * 1024;  // of one body

  static constexpr size_t kMaxTrailer = 4096;  // all trailer fields

  // Takes bytes off `in` and puts data into `out`, until either is used up, or at the end of the body, or at
  // a problem. Returns the number of data bytes.
  size_t decode(std::string_view& in, char* out, size_t size);

  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  // Not empty: refuse and close.
  [[nodiscard]] std::string_view problem() const { return problem_; }

 private:
  enum class State {
    kSize,
    kExtension,
    kSizeEnd,
    kData,
    kDataCr,
    kDataLf,
    kTrailer,
    kTrailerLf,
    kLastLf,
    kDone
  };

  void step(char c);
  void size_digit(char c);
  void extension(char c);
  void trailer(char c);
  void trailer_ended();
  void refuse(std::string_view why) { problem_ = why; }

  State state_ = State::kSize;
  uint64_t left_ = 0;
  unsigned digits_ = 0;
  size_t extension_ = 0, extensions_ = 0;
  std::string trailer_;  // the line so far
  size_t trailers_ = 0;
  std::string_view problem_;
};

}  // namespace isogate::front
