// Any bytes through the front's text functions: no crash, and they agree with each other.
#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/front/api/mime.h"
#include "gateway/front/base/names.h"
#include "lib/text.h"
#include "tests/fuzz/require.h"

namespace {

// The reverse of append_json_string(), as simple as possible.
std::string unescape(std::string_view json) {
  require(json.size() >= 2 && json.front() == '"' && json.back() == '"');
  json = json.substr(1, json.size() - 2);
  std::string out;
  for (size_t i = 0; i < json.size(); ++i) {
    require(static_cast<uint8_t>(json[i]) >= 0x20 && json[i] != '"');
    if (json[i] != '\\') {
      out += json[i];
      continue;
    }
    require(++i < json.size());
    static constexpr std::string_view kFrom = "\"\\bfnrt", kTo = "\"\\\b\f\n\r\t";
    if (size_t at = kFrom.find(json[i]); at != std::string_view::npos) {
      out += kTo[at];
      continue;
    }
    require(json[i] == 'u' && i + 4 < json.size());
    out += static_cast<char>(std::strtoul(std::string(json.substr(i + 1, 4)).c_str(), nullptr, 16));
    i += 4;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate;
  using namespace isogate::front;
  std::string_view text(reinterpret_cast<const char*>(data), size);

  size_t cut = utf8_boundary(text);
  require(cut <= size && size - cut <= 3);
  if (is_utf8(text)) require(cut == size);
  if (is_utf8(text.substr(0, cut))) require(utf8_boundary(text.substr(0, cut)) == cut);

  std::string json;
  append_json_string(json, text);
  require(unescape(json) == text);
  if (is_utf8(text)) require(is_utf8(json));

  require(base64_decode(base64_encode(text)) == text);
  if (auto decoded = base64_decode(text)) require(base64_encode(*decoded) == text);

  std::string shown = printable(text, 64);
  require(is_utf8(shown) && shown.size() < 64 + 24);
  for (char c : shown) require(static_cast<uint8_t>(c) >= 0x20 && c != 0x7F);

  if (auto decoded = percent_decode(text)) require(decoded->size() <= size);
  require(!mime_type(text).empty());
  if (valid_agent_id(text)) require(printable(text, 64) == text);
  return 0;
}
