#include "plugins/docker/files/exclude.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

#include "lib/text.h"

namespace isogate::docker {
namespace {

bool fits(std::string_view pattern, std::string_view name) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), 0) == 0;
}

// Row by row: reached[j] tells whether the pattern's components so far can take the first j of the path.
bool whole_path_fits(const std::vector<std::string_view>& pattern,
                     const std::vector<std::string_view>& path) {
  std::vector<char> reached(path.size() + 1, 0);
  reached[0] = 1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::vector<char> next(path.size() + 1, 0);
    // At the pattern's end `**` takes at least one: `dir/**` leaves `dir`.
    const size_t least = i + 1 == pattern.size() ? 1 : 0;
    for (size_t j = 0; j <= path.size(); ++j) {
      if (!reached[j]) continue;
      if (pattern[i] == "**") {
        std::fill(next.begin() + static_cast<std::ptrdiff_t>(std::min(j + least, path.size() + 1)),
                  next.end(), 1);
      } else if (j < path.size() && fits(pattern[i], path[j])) {
        next[j + 1] = 1;
      }
    }
    reached = std::move(next);
  }
  return reached.back() != 0;
}

bool excludes(std::string pattern, const std::string& path, bool directory) {
  if (pattern.back() == '/') {
    if (!directory) return false;
    pattern.pop_back();
  }
  if (pattern.find('/') == std::string::npos) return fits(pattern, path.substr(path.rfind('/') + 1));
  if (pattern.front() == '/') pattern.erase(0, 1);
  return whole_path_fits(split(pattern, '/'), split(path, '/'));
}

}  // namespace

std::string why_no_pattern(const std::string& pattern) {
  if (pattern.empty() || pattern.find('\0') != std::string::npos) return "is empty";
  if (pattern.front() == '!') return "begins with `!`: nothing is taken back in";
  const std::string all = "/" + pattern + (pattern.back() == '/' ? "" : "/");
  const bool rooted = pattern.front() == '/' && pattern.size() > 1;
  if (all.find("//", rooted ? 1 : 0) != std::string::npos || all.find("/./") != std::string::npos ||
      all.find("/../") != std::string::npos)
    return "has parts that are empty, `.` or `..`, which no path has";
  return "";
}

bool is_excluded(const std::vector<std::string>& patterns, const std::string& path, bool directory) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& each) { return excludes(each, path, directory); });
}

}  // namespace isogate::docker
