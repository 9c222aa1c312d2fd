#define BOOST_DLL_USE_STD_FS
#include "gateway/host/plugin/plugin_loader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <boost/dll/shared_library.hpp>
#include <cerrno>
#include <exception>
#include <memory>

#include "gateway/host/plugin/plugin_file.h"
#include "gateway/host/text.h"
#include "lib/fd.h"

namespace isogate {
namespace {

using boost::dll::shared_library;
using Entry = const isogate_plugin*(uint32_t, uint32_t);

// Never destroyed: threads and exit handlers of the plugin may outlive everything else.
shared_library* loaded = nullptr;

std::string hint(const std::string& reason) {
  if (reason.find("failed to map segment") != std::string::npos)
    return " (is the state directory on a file system mounted noexec?)";
  if (reason.find("undefined symbol") != std::string::npos)
    return " (link the plugin with -Wl,-z,defs to see this when it is built)";
  return "";
}

// Enters a directory, and leaves it again whatever happens.
class Visit {
 public:
  explicit Visit(int directory) : back_(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    entered_ = back_ && ::fchdir(directory) == 0;
  }
  ~Visit() {
    if (entered_ && ::fchdir(back_.get()) != 0) (void)!::chdir("/");
  }
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  Fd back_;
  bool entered_ = false;
};

Result<void> open_library(int directory, const std::string& name) {
  Visit visit(directory);
  if (!visit.entered())
    return os_error("cannot enter the directory of the copy of plugin `" + name + "`", errno);
  std::string path = std::string("./") + PluginCopy::kFile;
  const auto refusal = [&name](const char* why) {
    const std::string reason = clean_text(why, 800);
    return invalid("plugin `" + name + "` cannot be loaded: " + reason + hint(reason));
  };
  try {
    boost::dll::fs::error_code failed;  // always the same one: dlerror() has the reason
    auto library = std::make_unique<shared_library>(
        path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local, failed);
    if (!failed) {
      loaded = library.release();
      return {};
    }
  } catch (const std::exception& e) {
    return refusal(e.what());
  }
  const char* why = ::dlerror();
  return refusal(why != nullptr ? why : "the loader gives no reason");
}

}  // namespace

Result<ImportedPlugin> load_plugin(int directory, const std::string& name) {
  if (loaded != nullptr) return Error{ISOGATE_INTERNAL, 0, "this process has loaded a plugin already"};
  if (auto opened = open_library(directory, name); !opened) return opened.error();
  if (!loaded->has(ISOGATE_PLUGIN_ENTRY_NAME))
    return invalid(
        "plugin `" + name + "` does not export " ISOGATE_PLUGIN_ENTRY_NAME +
        "(): it is no isogate plugin, or it was built with hidden visibility and without the export macro");
  try {
    return import_plugin(loaded->get<Entry>(ISOGATE_PLUGIN_ENTRY_NAME)(ISOGATE_ABI_MAJOR, ISOGATE_ABI_MINOR),
                         name);
  } catch (...) {
    return invalid("plugin `" + name +
                   "`: its entry function threw an exception; nothing may throw across the ABI");
  }
}

}  // namespace isogate
