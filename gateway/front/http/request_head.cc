#include "gateway/front/http/request_head.h"

#include <algorithm>
#include <array>

#include "gateway/front/http/http_text.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

constexpr size_t kLengthDigits = 18;  // below 2^63, whatever they are

// What may occur once. A second one is what a proxy and this gateway could read differently.
struct Single {
  std::string_view name, reason;
};
constexpr std::array kSingle = {
    Single{"authorization", "decides who asks"},
    Single{"content-length", "decides where the body ends"},
    Single{"content-range", "decides what the body is"},
    Single{"content-type", "decides how the body is read"},
    Single{"e2b-sandbox-id", "decides whose sandbox it is"},
    Single{"e2b-sandbox-port", "decides which port is asked"},
    Single{"e2b-traffic-access-token", "decides who asks"},
    Single{"expect", "decides when the body comes"},
    Single{"host", "decides whom is asked"},
    Single{"if-range", "decides what is answered"},
    Single{"if-unmodified-since", "decides whether anything is done"},
    Single{"mcp-method", "is what the body says"},
    Single{"mcp-name", "is what the body says"},
    Single{"mcp-protocol-version", "decides how the body is read"},
    Single{"origin", "decides whether a web page may ask"},
    Single{"range", "decides what is answered"},
    Single{"sec-fetch-site", "decides whether a web page may ask"},
    Single{"transfer-encoding", "decides where the body ends"},
    Single{"x-access-token", "decides who asks"},
    Single{"x-agent-id", "decides whose sandbox it is"},
    Single{"x-api-key", "decides who asks"},
    Single{"x-isogate-key", "decides who asks"},
};

bool is_token(std::string_view text) { return is_alnum_or(text, "!#$%&'*+-.^_`|~"); }

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool is_host(std::string_view text) { return text.empty() || is_alnum_or(text, "!#$%&'*+-.^_`|~:[]"); }

// Takes one line off `rest`, without its CRLF.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find("\r\n");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  return line;
}

class Judge {
 public:
  HeadVerdict verdict;

  void request_line(std::string_view line) {
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last)
      return refuse("the request line has not three parts");
    const std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string_view version = line.substr(last + 1);
    if (!is_token(line.substr(0, first))) return refuse("the method is not a token");
    if (target.empty() || target.find(' ') != std::string_view::npos)
      return refuse("the request target is empty or holds a blank");
    if (std::any_of(target.begin(), target.end(), is_control))
      return refuse("the request target holds a control character");
    if (version != "HTTP/1.1" && version != "HTTP/1.0")
      return refuse("only the versions 1.0 and 1.1 of HTTP are spoken here");
    http10_ = version == "HTTP/1.0";
  }

  // True when it was one that may occur once.
  bool field(std::string_view line) {
    if (line.front() == ' ' || line.front() == '\t') return refused("a header line is folded");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return refused("a header line has no colon");
    const std::string_view name = line.substr(0, colon);
    if (!is_token(name)) return refused("a header's name is empty or holds what no name may hold");
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (std::any_of(value.begin(), value.end(), [](char c) { return c != '\t' && is_control(c); }))
      return refused("the header `" + std::string(name) + "` holds a control character");
    for (size_t i = 0; i < kSingle.size(); ++i) {
      if (equal_no_case(name, kSingle[i].name)) {
        single(i, value);
        return true;
      }
    }
    return false;
  }

  void end() {
    if (!seen_[index_of("host")] && !http10_) return refuse("a Host header is needed");
    if (verdict.body.chunked && verdict.body.length)
      return refuse("Content-Length and Transfer-Encoding together leave the body's length in doubt");
    if (verdict.body.chunked && http10_) return refuse("HTTP/1.0 knows no Transfer-Encoding");
  }

 private:
  static constexpr size_t index_of(std::string_view name) {
    size_t i = 0;
    while (kSingle[i].name != name) ++i;
    return i;
  }

  void refuse(std::string why) {
    if (verdict.problem.empty()) verdict.problem = std::move(why);
  }

  bool refused(std::string why) {
    refuse(std::move(why));
    return false;
  }

  void single(size_t index, std::string_view value) {
    const Single& one = kSingle[index];
    if (std::exchange(seen_[index], true))
      return refuse("the header `" + std::string(one.name) + "` occurs twice; it " + std::string(one.reason));
    if (index == index_of("host") && !is_host(value)) return refuse("the Host header is not a host and port");
    if (index == index_of("content-length")) return length(value);
    if (index == index_of("transfer-encoding")) {
      if (!equal_no_case(value, "chunked"))
        return refuse("the only transfer coding understood here is `chunked`");
      verdict.body.chunked = true;
    }
  }

  void length(std::string_view value) {
    if (!is_digits(value) || value.size() > kLengthDigits)
      return refuse("Content-Length is not one plain number of at most " + std::to_string(kLengthDigits) +
                    " digits");
    verdict.body.length = number_in<uint64_t>(value);
  }

  bool http10_ = false;
  std::array<bool, kSingle.size()> seen_{};
};

}  // namespace

bool HeadScanner::step(char c) {
  if (after_cr_ != (c == '\n')) {
    problem_ =
        after_cr_ ? "a carriage return does not end its line" : "a line ends without a carriage return";
    return false;
  }
  after_cr_ = c == '\r';
  if (is_control(c) && c != '\r' && c != '\n' && c != '\t') {
    problem_ = "the head holds a control character; this port speaks plain HTTP/1.1";
    return false;
  }
  return true;
}

std::optional<size_t> HeadScanner::scan(std::string_view bytes) {
  while (problem_.empty()) {
    for (; seen_ < std::min<size_t>(bytes.size(), most_) && !after_cr_ && !is_control(bytes[seen_]); ++seen_)
      ++line_;
    if (seen_ == bytes.size()) break;
    const char c = bytes[seen_];
    if (!step(c)) return std::nullopt;
    if (++seen_ > most_) {
      problem_ = "the request line and headers are over " + std::to_string(most_) + " bytes";
      return std::nullopt;
    }
    if (c != '\n') {
      ++line_;
      continue;
    }
    if (line_ == 1) {  // the carriage return alone
      if (seen_ > 2) return seen_;
      problem_ = "an empty line stands where a request should begin";
    }
    line_ = 0;
  }
  return std::nullopt;
}

bool may_be_trailer(std::string_view line) {
  Judge judge;
  return !judge.field(line) && judge.verdict.problem.empty();
}

HeadVerdict judge_head(std::string_view head, const HeadLimits& limits) {
  Judge judge;
  judge.request_line(take_line(head));
  size_t fields = 0;
  for (auto line = take_line(head); !line.empty() && judge.verdict.problem.empty(); line = take_line(head)) {
    if (++fields > limits.fields) {
      judge.verdict.problem = "there are over " + std::to_string(limits.fields) + " headers";
      break;
    }
    if (line.size() > kMostOfLine) {
      judge.verdict.problem = "a header is over " + std::to_string(kMostOfLine) + " bytes";
      break;
    }
    judge.field(line);
  }
  judge.end();
  return std::move(judge.verdict);
}

namespace {

// "HTTP/1.1 200 OK"; the reason may be empty.
bool take_status_line(std::string_view line, AnswerVerdict& to) {
  if (!line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.0 ")) return false;
  line.remove_prefix(9);
  if (line.size() < 3 || !is_digits(line.substr(0, 3)) || (line.size() > 3 && line[3] != ' ')) return false;
  to.status = number_in<int>(line.substr(0, 3)).value_or(0);
  to.reason = line.substr(std::min<size_t>(line.size(), 4));
  return to.status >= 100 && to.status < 600;
}

bool take_answer_length(std::string_view value, AnswerVerdict& to) {
  if (!is_digits(value) || value.size() > kLengthDigits || to.body.length) return false;
  to.body.length = number_in<uint64_t>(value);
  return true;
}

}  // namespace

AnswerVerdict judge_answer(std::string_view head, const HeadLimits& limits) {
  AnswerVerdict verdict;
  const auto refused = [](std::string why) {
    AnswerVerdict none;
    none.problem = std::move(why);
    return none;
  };
  if (!take_status_line(take_line(head), verdict))
    return refused("it begins with no status line of HTTP/1.1");
  for (auto line = take_line(head); !line.empty(); line = take_line(head)) {
    if (verdict.fields.size() >= limits.fields) return refused("it has too many headers");
    const size_t colon = line.find(':');
    const std::string_view name = line.substr(0, std::min(colon, line.size()));
    if (colon == std::string_view::npos || !is_token(name)) return refused("one of its headers is malformed");
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (std::any_of(value.begin(), value.end(), [](char c) { return c != '\t' && is_control(c); }))
      return refused("one of its headers holds a control character");
    if (equal_no_case(name, "content-length") && !take_answer_length(value, verdict))
      return refused("its Content-Length is not one plain number");
    if (equal_no_case(name, "transfer-encoding")) {
      if (!equal_no_case(value, "chunked") || verdict.body.chunked)
        return refused("its Transfer-Encoding is not `chunked` alone");
      verdict.body.chunked = true;
    }
    verdict.fields.emplace_back(name, value);
  }
  if (verdict.body.chunked && verdict.body.length)
    return refused("Content-Length and Transfer-Encoding together leave its length in doubt");
  return verdict;
}

}  // namespace isogate::front
