#include "gateway/config/images.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate {

bool is_image_name(std::string_view text) { return is_name(text, "._:/@-", 255); }

bool is_image_pattern(std::string_view text) {
  if (text == "*") return true;
  return is_image_name(text.ends_with('*') ? text.substr(0, text.size() - 1) : text);
}

bool image_admitted(const std::vector<std::string>& patterns, std::string_view image) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    if (!pattern.ends_with('*')) return pattern == image;
    pattern.remove_suffix(1);
    // What stands before the first slash may name a registry, which `*` does not complete.
    const bool whole = pattern.empty() || pattern.find('/') != std::string_view::npos;
    return image.starts_with(pattern) && (whole || image.find('/') == std::string_view::npos);
  });
}

}  // namespace isogate
