#include "gateway/host/text.h"

#include "lib/text.h"

namespace isogate {

std::string clean_text(std::string_view text, size_t limit) {
  std::string clean;
  while (!text.empty() && clean.size() < limit + 4) {
    CodePoint point = first_code_point(text);
    if (point.size == 0) {
      clean += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    bool control = point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0) ||
                   point.value == 0x2028 || point.value == 0x2029;
    if (control)
      clean += ' ';
    else
      clean.append(text.substr(0, point.size));
    text.remove_prefix(point.size);
  }
  return std::string(utf8_prefix(clean, limit));
}

}  // namespace isogate
