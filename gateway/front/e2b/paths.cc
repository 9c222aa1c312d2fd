#include "gateway/front/e2b/paths.h"

#include <vector>

#include "isogate/backend.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = next_part(path, '/');
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (!parts.empty()) {
      parts.pop_back();
    }
  }
  std::string clean;
  for (const std::string_view part : parts) clean.append("/").append(part);
  return clean.empty() ? "/" : clean;
}

}  // namespace

std::string below(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.ends_with('/')) path += '/';
  return path.append(name);
}

Place place_of(std::string_view path, std::string_view home) {
  Place place;
  if (path == "~" || path.starts_with("~/")) {
    place.shown = without_dots(below(home, path.substr(1)));
  } else {
    place.shown = without_dots(path.starts_with('/') ? std::string(path) : below(home, path));
  }
  const std::string root = without_dots(home);
  const bool is_home = place.shown == root, in_home = place.shown.starts_with(below(root, ""));
  place.scope = is_home || in_home ? ISOGATE_SCOPE_WORKSPACE : ISOGATE_SCOPE_SANDBOX;
  place.path = is_home ? "." : in_home ? place.shown.substr(below(root, "").size()) : place.shown;
  return place;
}

}  // namespace isogate::front::e2b
