#include "plugins/common/environment.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace isogate {

Environment variables_of_process() {
  return [](const std::string& name) -> std::optional<std::string> {
    if (const char* value = ::secure_getenv(name.c_str()); value != nullptr) return value;
    if (name == "XDG_RUNTIME_DIR") return "/run/user/" + std::to_string(::geteuid());
    if (name != "HOME") return std::nullopt;
    char text[4096];
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwuid_r(::geteuid(), &entry, text, sizeof text, &found) != 0 || found == nullptr)
      return std::nullopt;
    return found->pw_dir;
  };
}

std::optional<std::string> value_of(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  if (value && value->empty()) value.reset();
  return value;
}

}  // namespace isogate
