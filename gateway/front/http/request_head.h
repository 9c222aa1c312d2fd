// The head of a request, judged before anything else reads it (RFC 9112).
//
// Stricter than the RFC requires, because leniency lets a proxy in front see a different request: lines
// end in CRLF and nothing else, no folded line, no blank before a colon, no control character, no empty
// line in front, one Host, one field that gives the length of the body. Pure; fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isogate::front {

struct HeadLimits {
  uint32_t bytes = 16384;  // request line and headers, with the empty line
  uint32_t fields = 100;
};

struct BodyFraming {
  bool chunked = false;
  std::optional<uint64_t> length;  // Content-Length; neither: there is no body
};

// Finds the end of a head that arrives in pieces, and refuses at the first invalid byte.
class HeadScanner {
 public:
  explicit HeadScanner(uint32_t most) : most_(most) {}

  // `bytes` is all that came since the head's first byte. The size of the head, once it is complete.
  std::optional<size_t> scan(std::string_view bytes);
  // Not empty: this is no head, and why.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  bool step(char c);

  uint32_t most_;
  size_t seen_ = 0;
  size_t line_ = 0;  // bytes of the present line
  bool after_cr_ = false;
  std::string problem_;
};

// Of a header, name and value: Beast counts each in 16 bits, with its separator.
inline constexpr size_t kMostOfLine = 65533;

struct HeadVerdict {
  BodyFraming body;
  std::string problem;  // not empty: refuse and close
};

// `head` is whole: it ends with the empty line.
HeadVerdict judge_head(std::string_view head, const HeadLimits& limits);

// The head of an answer that a program in a sandbox gives, as strictly.
struct AnswerVerdict {
  unsigned status = 0;
  std::string reason;
  std::vector<std::pair<std::string, std::string>> fields;
  BodyFraming body;     // neither chunked nor a length: to the end of the connection
  std::string problem;  // not empty: it cannot be interpreted
};
AnswerVerdict judge_answer(std::string_view head, const HeadLimits& limits);

// One trailer line, without its CRLF: a well-formed field that does not affect the request.
bool may_be_trailer(std::string_view line);

}  // namespace isogate::front
