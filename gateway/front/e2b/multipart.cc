#include "gateway/front/e2b/multipart.h"

#include <algorithm>

#include "gateway/front/base/api_error.h"
#include "gateway/front/http/http_text.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace asio = boost::asio;
namespace {

ApiError malformed(const std::string& why) {
  return invalid_request("the body is no multipart/form-data: " + why);
}

// A parameter of a header's value: a token, or a quoted string. Some clients write the backslashes of a file
// name unescaped.
std::optional<std::string> parameter_of(std::string_view value, std::string_view name) {
  for (size_t at = value.find(';'); at != std::string_view::npos;) {
    std::string_view rest = value.substr(at + 1);
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const bool wanted = equal_no_case(trimmed(rest.substr(0, equals)), name);
    size_t i = equals + 1;
    while (i < rest.size() && rest[i] == ' ') ++i;
    std::string text;
    if (i < rest.size() && rest[i] == '"') {
      for (++i; i < rest.size() && rest[i] != '"'; ++i) {
        const bool escape = rest[i] == '\\' && i + 1 < rest.size();
        if (escape && (rest[i + 1] == '"' || rest[i + 1] == '\\')) ++i;
        text += rest[i];
      }
      if (i == rest.size()) return std::nullopt;
    } else {
      const size_t end = std::min(rest.find(';', i), rest.size());
      text = trimmed(rest.substr(i, end - i));
    }
    if (wanted) return text;
    const size_t next = rest.find(';', i);
    at = next == std::string_view::npos ? next : at + 1 + next;
  }
  return std::nullopt;
}

// What forms escape in a name (WHATWG HTML, "multipart/form-data").
std::string unescaped(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const std::string_view three = name.substr(0, 3);
    const char byte = three == "%22" ? '"' : three == "%0A" ? '\n' : three == "%0D" ? '\r' : '\0';
    text += byte == '\0' ? name.front() : byte;
    name.remove_prefix(byte == '\0' ? 1 : 3);
  }
  return text;
}

}  // namespace

std::optional<std::string> boundary_of(std::string_view content_type) {
  if (!equal_no_case(trimmed(content_type.substr(0, content_type.find(';'))), "multipart/form-data"))
    return std::nullopt;
  auto boundary = parameter_of(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > 70) return std::nullopt;
  return boundary;
}

Multipart::Multipart(const std::string& boundary, ReadBody read)
    : delimiter_("\r\n--" + boundary), read_(std::move(read)), piece_(kRead, '\0'), kept_("\r\n") {}

asio::awaitable<bool> Multipart::more() {
  kept_.erase(0, std::exchange(taken_, 0));
  const size_t n = co_await read_(piece_.data(), piece_.size());
  kept_.append(piece_, 0, n);
  co_return n > 0;
}

void Multipart::skip(size_t bytes) {
  skipped_ += bytes;
  if (skipped_ > kMostSkipped)
    throw invalid_request("over " + std::to_string(kMostSkipped) +
                          " bytes of the body are in no part named `file`");
}

// Without its end.
asio::awaitable<std::string> Multipart::take_line() {
  for (;;) {
    const std::string_view rest = std::string_view(kept_).substr(taken_);
    if (const size_t end = rest.find("\r\n"); end <= kMostHead) {
      taken_ += end + 2;
      co_return std::string(rest.substr(0, end));
    }
    if (rest.size() > kMostHead + 1)  // the last may be half of its end
      throw malformed("a part's header is over " + std::to_string(kMostHead) + " bytes");
    if (!co_await more()) throw malformed("it ends inside a part's header");
  }
}

asio::awaitable<std::string_view> Multipart::read() {
  while (in_part_) {
    const std::string_view rest = std::string_view(kept_).substr(taken_);
    const size_t at = rest.find(delimiter_);
    const size_t safe =
        at != std::string_view::npos ? at : rest.size() - std::min(rest.size(), delimiter_.size() - 1);
    if (safe > 0) {
      const size_t from = taken_;
      taken_ += safe;
      co_return std::string_view(kept_).substr(from, safe);
    }
    if (at == 0) {
      in_part_ = false;
    } else if (!co_await more()) {
      throw malformed("it ends inside a part");
    }
  }
  co_return std::string_view();
}

asio::awaitable<std::optional<Multipart::Part>> Multipart::next() {
  if (over_) co_return std::nullopt;
  if (parts_ == 0) in_part_ = true;  // what stands before the first boundary
  for (std::string_view piece = co_await read(); !piece.empty(); piece = co_await read()) skip(piece.size());
  while (kept_.size() - taken_ < delimiter_.size() + 2)
    if (!co_await more()) throw malformed("it has no last boundary");
  taken_ += delimiter_.size();
  if (kept_.compare(taken_, 2, "--") == 0) {
    over_ = true;
    skip(kept_.size() - taken_);
    taken_ = kept_.size();
    while (co_await more()) {
      skip(kept_.size());
      taken_ = kept_.size();
    }
    co_return std::nullopt;
  }
  if (!trimmed(co_await take_line()).empty()) throw malformed("there is text after a boundary");
  if (++parts_ > kMostParts) throw malformed("it has over " + std::to_string(kMostParts) + " parts");
  Part part;
  size_t head = 0;
  for (std::string line = co_await take_line(); !line.empty(); line = co_await take_line()) {
    head += line.size();
    if (head > kMostHead) throw malformed("a part's header is over " + std::to_string(kMostHead) + " bytes");
    const size_t colon = line.find(':');
    if (colon == std::string::npos) throw malformed("a line of a part's header has no colon");
    if (!equal_no_case(std::string_view(line).substr(0, colon), "Content-Disposition")) continue;
    const std::string_view value = std::string_view(line).substr(colon + 1);
    part.name = unescaped(parameter_of(value, "name").value_or(""));
    if (const auto filename = parameter_of(value, "filename")) part.filename = unescaped(*filename);
  }
  in_part_ = true;
  co_return part;
}

}  // namespace isogate::front::e2b
