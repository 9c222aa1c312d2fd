#include "plugins/k8s/client/resource.h"

#include <algorithm>
#include <cctype>

#include "plugins/k8s/client/api_error.h"

namespace isogate::k8s {
namespace {

constexpr size_t kNameMost = 253;

// Names of objects, plurals and versions: nothing that leads out of its place in a path has this form.
const std::string& in_path(const std::string& name, const char* what) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == ':'; };
  if (name.empty() || name.size() > kNameMost || !std::all_of(name.begin(), name.end(), fits) ||
      name.find_first_not_of('.') == std::string::npos)
    throw ApiError(ISOGATE_INVALID_ARGUMENT,
                   "`" + printable(name, 80) + "` is no " + what + " that a cluster has");
  return name;
}

std::string version_path(const std::string& group_version) {
  const size_t slash = group_version.find('/');
  if (slash == std::string::npos) return "/api/" + in_path(group_version, "version");
  return "/apis/" + in_path(group_version.substr(0, slash), "group") + "/" +
         in_path(group_version.substr(slash + 1), "version");
}

}  // namespace

std::string Resource::path() const {
  std::string path = version_path(group_version);
  if (!name_space.empty()) path += "/namespaces/" + in_path(name_space, "namespace");
  path += "/" + in_path(plural, "resource");
  if (!name.empty()) path += "/" + in_path(name, "name");
  if (!subresource.empty()) path += "/" + in_path(subresource, "subresource");
  return path;
}

std::string Resource::text() const {
  constexpr size_t kMost = 120;
  std::string what = plural + (subresource.empty() ? "" : "/" + subresource);
  if (name_space.empty() && name.empty()) return printable(what, kMost);
  what += " `" + name_space + (name_space.empty() || name.empty() ? "" : "/") + name + "`";
  return printable(what, kMost);
}

}  // namespace isogate::k8s
