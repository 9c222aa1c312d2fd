// Configuration files and documents: every mistake is reported, and an accepted one means the same when it is
// written and read again.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "gateway/config/load.h"
#include "lib/fd.h"
#include "tests/fuzz/require.h"

namespace {

// A file of only this process: a process of root reads no other. Removed at the end.
class OwnFile {
 public:
  OwnFile() { require(::mkdtemp(directory_.data()) != nullptr); }
  ~OwnFile() { std::filesystem::remove_all(directory_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  void fill(std::string_view bytes) const {
    const isogate::Fd file(::open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    require(file && ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::string path() const { return directory_ + "/c.yaml"; }

 private:
  std::string directory_ = "/tmp/isogate-fuzz-XXXXXX";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isogate;
  static const OwnFile file;
  file.fill({reinterpret_cast<const char*>(data), size});
  LoadOptions options;
  options.file = file.path();
  const auto loaded = load_config(options);
  if (loaded.ok()) {
    const auto again = config_from_json(loaded->document);
    require(again.ok() && config_to_json(*again) == loaded->document);
  } else {
    require(!loaded.error().message.empty());
  }
  const auto document = config_from_json(std::string(reinterpret_cast<const char*>(data), size));
  if (document.ok()) {
    const std::string text = config_to_json(*document);
    const auto again = config_from_json(text);
    require(again.ok() && config_to_json(*again) == text);
  }
  return 0;
}
