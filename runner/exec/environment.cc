#include "runner/exec/environment.h"

#include <algorithm>

namespace isogate {
namespace {

std::string in_front(const std::string& toolchain, const std::string& path) {
  if (toolchain.empty()) return path;
  return path.empty() ? toolchain : toolchain + ":" + path;
}

}  // namespace

Result<void> check_environment(const Environment& given) {
  for (const auto& [name, value] : given) {
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos)
      return invalid("an environment variable's name is empty or holds `=` or NUL");
    if (value.find('\0') != std::string::npos) return invalid("an environment variable's value holds NUL");
  }
  return {};
}

Result<Environment> complete(Environment given, const Surroundings& around) {
  if (auto checked = check_environment(given); !checked) return checked.error();
  const auto add = [&given](const char* name, const std::string& value) {
    const auto same = [name](const auto& pair) { return pair.first == name; };
    if (std::none_of(given.begin(), given.end(), same)) given.emplace_back(name, value);
  };
  for (auto& [name, value] : given)
    if (name == "PATH") value = in_front(around.toolchain, value);
  add("PATH", in_front(around.toolchain, kDefaultPath));
  add("HOME", around.workspace);
  add("USER", around.user);
  add("LOGNAME", around.user);
  add("SHELL", around.shell);
  add("WORKSPACE", around.workspace);
  return given;
}

}  // namespace isogate
